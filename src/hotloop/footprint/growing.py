"""Leaks by name: the source lines, types and containers that grew from look to look (``growth`` notes)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from hotloop.record.recording import Note, Process

Sizes = tuple[float, float]

#: Looks that are needed at least, each showing more than the one before.
_LOOKS = 3
#: Growth of a line smaller than this is the housekeeping of libraries.
_MIN_BYTES = 128 * 2**10
#: Objects or items that come with every step, at least.
_PER_STEP = 0.5
_MOST = 5


def growing(process: Process) -> dict[str, Any] | None:
    """What grew steadily over the last looks, the largest first; None where fewer than three were taken."""
    looks = [note for note in process.notes.get("growth", []) if note.get("steps", 0) > 0]
    traced = [note for note in looks if note["lines"]]
    if len(looks) < _LOOKS:
        return None
    last = looks[-1]
    lines = [
        {"file": key[0], "line": key[1], "bytes": values[0], "blocks": values[1], "bytes_per_step": rate}
        for key, values, rate in _steady(traced, lambda note: _pairs(note["lines"]), by=0)
        if rate * last["steps"] >= _MIN_BYTES
    ]
    types = [
        {"name": name, "bytes": values[0], "count": values[1], "count_per_step": rate}
        for name, values, rate in _steady(looks, lambda note: _pairs(note["types"]), by=1)
        if rate >= _PER_STEP
    ]
    containers = [
        {"type": key[0], "holder": key[1], "name": key[2], "length": values[0], "items_per_step": rate}
        for key, values, rate in _steady(looks, _containers, by=0)
        if rate >= _PER_STEP
    ]
    return {
        "steps": last["steps"],
        "seconds": last["seconds"],
        "lines": sorted(lines, key=lambda one: -one["bytes"])[:_MOST],
        "types": sorted(types, key=lambda one: (-one["bytes"], -one["count"]))[:_MOST],
        "containers": sorted(containers, key=lambda one: -one["items_per_step"])[:_MOST],
    }


def _pairs(entries: Iterable[list[Any]]) -> dict[Any, Sizes]:
    return {tuple(key) if isinstance(key, list) else key: (size, count) for key, size, count in entries}


def _containers(note: Note) -> dict[Any, Sizes]:
    return {(kind, holder, name): (length, more) for kind, holder, name, length, more in note["containers"]}


def _steady(
    looks: Sequence[Note], values: Callable[[Note], Mapping[Any, Sizes]], *, by: int
) -> Iterator[tuple[Any, Sizes, float]]:
    """What grew with the steps through the last looks: key, values at the last, and growth per step.

    In each of the last intervals the value ``by`` must grow at half the rate of all of them or more: what is
    made once, or comes and goes, does not.
    """
    if len(looks) < _LOOKS:
        return
    seen = [(int(note["steps"]), values(note)) for note in looks[-_LOOKS - 1 :]]
    (begin, first), (end, last) = seen[0], seen[-1]
    for key, sizes in last.items():
        if end <= begin or not all(key in found for _, found in seen):
            continue
        rate = (sizes[by] - first[key][by]) / (end - begin)
        rises = (
            later[key][by] - earlier[key][by] >= 0.5 * rate * (after - before)
            for (before, earlier), (after, later) in pairwise(seen)
        )
        if rate > 0 and all(rises):
            yield key, sizes, rate
