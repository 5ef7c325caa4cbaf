"""Exact cost of every call site of an observed operation; intervals of evaluations and checkpoints."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import numpy as np

from hotloop.findings import Place
from hotloop.measure.attribution import Bytes
from hotloop.measure.evaluation import Events, Regions
from hotloop.measure.loop import Loop
from hotloop.measure.places import Frame, Places
from hotloop.measure.spans import Bools, Ints, Spans, Table
from hotloop.measure.statements import own_nodes
from hotloop.measure.stepping import Stepping
from hotloop.measure.steps import Interval, SiteCost
from hotloop.phases import COLUMN
from hotloop.record import rows as row

#: View name -> kind of row and the names of its operations (``obj``).
VIEWS: Final[dict[str, tuple[int, tuple[str, ...]]]] = {
    "sync": (row.SYNC, row.SYNC_OPS),
    "transfer": (row.TRANSFER, ("", "host-to-device", "device-to-host")),
    "collective": (row.COLLECTIVE, row.COLLECTIVE_OPS),
    "logging": (row.LOG, row.LOG_OPS),
    "checkpoint": (row.SAVE, ("", "write", "state_dict", "load")),
    "socket": (row.SOCKET, ("", "select", "recv", "send")),
}

TRANSFER_FLAGS: Final = {
    "pinned": row.TRANSFER_PINNED,
    "non_blocking": row.TRANSFER_NON_BLOCKING,
    "converts": row.TRANSFER_CONVERTS,
    "float": row.TRANSFER_FLOAT,
}


def site_costs(
    spans: Spans, events: Events, phase: Bytes, stepping: Stepping, places: Places
) -> dict[str, tuple[SiteCost, ...]]:
    """Sites by view, each sorted by seconds; views without a call are left out."""
    counted = events.used.copy()
    if len(stepping):
        counted &= (spans.start >= stepping.span[0]) & (spans.start < stepping.span[1])
    views = {}
    for name, (kind, operations) in VIEWS.items():
        index = np.flatnonzero(counted & (spans.kind == kind))
        if len(index):
            costs = _costs(spans, phase, index, operations, places)
            views[name] = tuple(sorted(costs, key=lambda cost: -cost.seconds))
    return views


def _costs(
    spans: Spans, phase: Bytes, index: Ints, operations: tuple[str, ...], places: Places
) -> list[SiteCost]:
    key = (spans.site[index].astype(np.int64) << 16) | spans.obj[index]
    keys, group = np.unique(key, return_inverse=True)
    count = np.bincount(group)
    kind = int(spans.kind[index[0]])
    length = spans.duration[index] if kind == row.SAVE else spans.exclusive[index]
    seconds = np.bincount(group, weights=length) / 1e9
    has_bytes = kind in (row.TRANSFER, row.COLLECTIVE)
    num_bytes = np.bincount(group, weights=spans.value[index]) if has_bytes else np.zeros(len(keys))
    aside = np.isin(phase[index], (COLUMN["evaluation"], COLUMN["checkpoint"]))
    in_step = np.bincount(group, weights=~aside) * 2 > count
    shares = {
        name: np.bincount(group, weights=(spans.flags[index] & bit) != 0) / count
        for name, bit in (TRANSFER_FLAGS.items() if kind == row.TRANSFER else ())
    }
    return [
        SiteCost(
            place=places.site(int(keys[i]) >> 16),
            operation=_operation(operations, int(keys[i]) & 0xFFFF),
            count=int(count[i]),
            seconds=float(seconds[i]),
            num_bytes=int(num_bytes[i]),
            flags={name: float(share[i]) for name, share in shares.items()},
            in_step=bool(in_step[i]),
        )
        for i in range(len(keys))
    ]


def _operation(operations: tuple[str, ...], number: int) -> str:
    return (operations[number] if number < len(operations) else "") or "other"


def intervals(
    spans: Spans,
    events: Events,
    found: tuple[Ints, Ints, Ints],
    stepping: Stepping,
    loop: Loop,
    places: Places,
    apart: Mapping[int, Place] = MappingProxyType({}),
) -> tuple[Interval, ...]:
    """Evaluations or checkpoints (start, end, first row), each with the line it was started from.

    ``apart``: where those of a first row's site were started from, known otherwise.
    """
    worked = np.flatnonzero(events.step)
    done = np.append(-1, stepping.of(spans.start[worked]))  # the step of the last update before
    after = done[np.searchsorted(spans.start[worked], found[0])] + 1
    return tuple(
        Interval(
            start_s=int(start) / 1e9,
            end_s=int(end) / 1e9,
            after_step=int(after[i]),
            place=apart.get(int(spans.site[first])) or _started_from(int(spans.site[first]), loop, places),
        )
        for i, (start, end, first) in enumerate(zip(*found, strict=True))
    )


def called_apart(
    samples: Table, spans: Spans, regions: Regions, trains: Bools, stepping: Stepping, places: Places
) -> dict[int, Place]:
    """Site of an evaluation's first row -> the call that leads there and to no training.

    One function may train and evaluate (``run_epoch(loader, train=False)``): a site is known by its innermost
    line and has the stack it was first seen with, which is training's. Samples have their own.
    """
    site = spans.site[regions.first]
    shared = np.intersect1d(site, spans.site[trains])
    if not len(shared):
        return {}
    in_span = (samples.start >= stepping.span[0]) & (samples.start < stepping.span[1])
    stacks = {number: [f.place() for f in stack.frames] for number, stack in places.stacks.items()}
    training = np.unique(samples.value[in_span & ~regions.holds(samples.start)])
    through = {place for number in training for place in stacks.get(int(number), ())}
    found = {}
    for number in shared:
        mine = site == number
        own = Regions(start=regions.start[mine], end=regions.end[mine], first=regions.first[mine])
        seen, counts = np.unique(samples.value[own.holds(samples.start)], return_counts=True)
        votes: Counter[Place | None] = Counter()
        for at, count in zip(seen.tolist(), counts.tolist(), strict=True):
            votes[next((place for place in stacks.get(at, ()) if place not in through), None)] += count
        place, most = votes.most_common(1)[0] if votes else (None, 0)
        if place is not None and 2 * most > votes.total():
            found[int(number)] = place
    return found


def with_graphs(evaluations: tuple[Interval, ...], spans: Spans, events: Events) -> tuple[Interval, ...]:
    """The evaluations, each with whether its forwards of trained modules built gradients."""
    forward = (spans.kind == row.FORWARD) & events.used
    built = (spans.flags & row.FORWARD_GRAD) != 0
    trained = np.zeros(row.U16_MAX + 1, np.bool_)
    trained[spans.obj[forward & built & ((spans.flags & row.FORWARD_TRAINING) != 0)]] = True
    index = np.flatnonzero(forward & trained[spans.obj])
    building = np.append(0, np.cumsum(built[index]))
    result = []
    for one in evaluations:
        first, last = np.searchsorted(spans.start[index] / 1e9, [one.start_s, one.end_s])
        graphs = building[last] - building[first]
        result.append(replace(one, builds_graphs=bool(2 * graphs > last - first)))
    return tuple(result)


def _started_from(site: int, loop: Loop, places: Places) -> Place | None:
    stack = places.sites.get(site)
    if stack is None:
        return None
    found = loop.statement(stack)
    if found is None:
        return places.site(site)
    frame, below = found
    function = loop.function(frame.function)
    statement = function.statement(frame.line) if function is not None else None
    # Of a loop over a generator the line says nothing: what began is in the generator.
    of_generator = below and statement is not None and isinstance(statement.node, ast.For | ast.AsyncFor)
    # Of one that runs the whole loop just as little: the user's function that it calls back says more.
    runs_all = below and function is not None and function.runs_all((frame.line, frame.col))
    started = below[0] if of_generator or runs_all else frame
    # A line that hands every step to callbacks says as little: one of them does it every N steps.
    return next((one for one in (frame, *below) if _every_nth(loop, one)), started).place()


def _every_nth(loop: Loop, frame: Frame) -> bool:
    """Whether a line stands under an ``if`` that asks for a remainder."""
    source = loop.source(frame.file)
    node = source.function(frame.func, frame.func_line) if source is not None else None
    return node is not None and any(
        isinstance(child, ast.If)
        and child.body[0].lineno <= frame.line <= (child.body[-1].end_lineno or 0)
        and any(isinstance(part, ast.Mod) for part in ast.walk(child.test))
        for child in own_nodes(node)
    )


def recurring_end(
    spans: Spans,
    regions: Regions,
    saves: tuple[Ints, Ints, Ints],
    stepping: Stepping,
    is_training: Bools,
    before: tuple[bool, bool],
) -> int:
    """Where the span ends when the evaluation or checkpoint after the last step is one of a series.

    Without this a run of two epochs would show one evaluation for two epochs of steps. ``before``: whether
    earlier pieces of a long recording had evaluations and checkpoints.
    """
    begin, end = stepping.span
    later = np.flatnonzero(is_training & (spans.start > end))
    limit = int(spans.start[later[0]]) if len(later) else np.iinfo(np.int64).max
    result = end
    for starts, ends, seen in (
        (regions.start, regions.end, before[0]),
        (saves[0], saves[1], before[1]),
    ):
        if seen or ((starts >= begin) & (ends <= end)).any():
            after = (starts >= end) & (ends <= limit)
            result = max(result, int(ends[after][0])) if after.any() else result
    return result
