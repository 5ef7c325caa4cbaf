"""Which optimizers pace a loop without a loader, where one is stepped in an inner loop (a critic)."""

from __future__ import annotations

import ast
from collections.abc import Mapping

import numpy as np

from hotloop.measure.dataflow import innermost_loop, parse
from hotloop.measure.evaluation import Events
from hotloop.measure.places import Frame, Places
from hotloop.measure.spans import Spans
from hotloop.measure.statements import FunctionNode
from hotloop.record import rows as row


def pacing_optimizers(spans: Spans, events: Events, places: Places) -> frozenset[int]:
    """Optimizers stepped directly in the innermost loop around all of them; empty where all are."""
    stacks = _stacks(spans, events, places)
    if len(stacks) < 2:
        return frozenset()
    shared = _shared_frames(stacks)
    if shared is None:
        return frozenset()
    file, name, first = next(iter(shared.values())).function
    lines = places.sources.get(file)
    source = parse(lines) if lines else None
    node = source.function(name, first) if source else None
    if node is None:
        return frozenset()
    return _direct(node, {optimizer: frame.line for optimizer, frame in shared.items()})


def _direct(node: FunctionNode, lines: Mapping[int, int]) -> frozenset[int]:
    around: ast.AST | None = innermost_loop(node, lines.values())
    if around is None:
        return frozenset()
    direct = {optimizer for optimizer, line in lines.items() if innermost_loop(node, [line]) is around}
    return frozenset(direct) if 0 < len(direct) < len(lines) else frozenset()


def _stacks(spans: Spans, events: Events, places: Places) -> dict[int, tuple[Frame, ...]]:
    """Optimizer id -> the stack it is usually stepped from."""
    steps = np.flatnonzero(events.step & (spans.kind == row.OPTIMIZER))
    found = {}
    for optimizer in np.unique(spans.obj[steps]):
        sites = spans.site[steps[spans.obj[steps] == optimizer]]
        stack = places.sites.get(int(np.bincount(sites).argmax()))
        if stack is not None and stack.frames:
            found[int(optimizer)] = stack.frames
    return found


def _shared_frames(stacks: Mapping[int, tuple[Frame, ...]]) -> dict[int, Frame] | None:
    """The frames of the deepest function through which every stack passes the same way."""
    shared = None
    for frames in zip(*stacks.values(), strict=False):
        if len({frame.function for frame in frames}) > 1:
            break
        shared = dict(zip(stacks, frames, strict=True))
        if len({frame.line for frame in frames}) > 1:
            break
    return shared
