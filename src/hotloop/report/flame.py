"""The flame graph: stacks of the training thread as a tree, each box as wide as the time under it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

from hotloop.measure.steps import StackCost
from hotloop.report.words import PHASE_WORDS

#: Smaller boxes than this share of all are not drawn, nor anything deeper.
_LEAST_RATIO: Final = 0.002
_DEEPEST: Final = 48

Frames = Sequence[tuple[str, str, int]]


def tree(stacks: Iterable[StackCost]) -> dict[str, Any] | None:
    """``{"name", "s", "children"}``, the first level by phase; None without samples. ``s`` are seconds of a
    box with all that it calls; ``file`` and ``line`` are where its function was seen most.
    """
    by_phase: dict[str, list[tuple[Frames, float]]] = defaultdict(list)
    for one in stacks:
        by_phase[one.phase].append((one.frames, one.seconds))
    total = sum(seconds for group in by_phase.values() for _, seconds in group)
    if total <= 0:
        return None
    phases = [
        {"name": PHASE_WORDS[name], "phase": name, **_sums(group, 0, _LEAST_RATIO * total)}
        for name, group in by_phase.items()
    ]
    return {"name": "training thread", "s": total, "children": _by_size(phases)}


def _sums(group: Sequence[tuple[Frames, float]], depth: int, least: float) -> dict[str, Any]:
    """The seconds of stacks that agree so far, and what they call next."""
    below: dict[tuple[str, str], list[tuple[Frames, float]]] = defaultdict(list)
    for frames, seconds in group:
        if depth < min(len(frames), _DEEPEST):
            below[frames[depth][:2]].append((frames, seconds))
    children = []
    for (function, file), stacks in below.items():
        if sum(seconds for _, seconds in stacks) >= least:
            line = max(stacks, key=lambda stack: stack[1])[0][depth][2]
            children.append({"name": function, "file": file, "line": line, **_sums(stacks, depth + 1, least)})
    found: dict[str, Any] = {"s": sum(seconds for _, seconds in group)}
    return {**found, "children": _by_size(children)} if children else found


def _by_size(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(nodes, key=lambda node: (-node["s"], node["name"]))
