"""Leaks by name: the source lines, types and containers that grew from look to look (``growth`` notes)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hotloop.record.recording import Note, Process

#: Looks that must each show more than the one before.
_LOOKS = 3
#: Growth of a line smaller than this is the housekeeping of libraries.
_MIN_BYTES = 128 * 2**10
#: Objects or items that come with every step, at least.
_PER_STEP = 0.5
_MOST = 5


def growing(process: Process) -> dict[str, Any] | None:
    """What grew steadily over the last looks, the largest first; None where fewer than three were taken."""
    looks = [note for note in process.notes.get("growth", []) if note.get("steps", 0) > 0][-2 * _LOOKS :]
    if len(looks) < _LOOKS:
        return None
    last = looks[-1]
    steps = int(last["steps"])
    lines = [
        {"file": file, "line": line, "bytes": size, "blocks": count, "bytes_per_step": size / steps}
        for (file, line), (size, count) in _steady(_pairs(note["lines"]) for note in looks)
        if size >= _MIN_BYTES
    ]
    types = [
        {"name": name, "bytes": size, "count": count, "count_per_step": count / steps}
        for name, (size, count) in _steady((_pairs(note["types"]) for note in looks), by=1)
        if count >= _PER_STEP * steps
    ]
    containers = [
        {"type": kind, "holder": holder, "name": name, "length": length, "items_per_step": more / steps}
        for (kind, holder, name), (length, more) in _steady(_containers(note) for note in looks)
        if more >= _PER_STEP * steps
    ]
    return {
        "steps": steps,
        "seconds": last["seconds"],
        "lines": sorted(lines, key=lambda one: -one["bytes"])[:_MOST],
        "types": sorted(types, key=lambda one: (-one["bytes"], -one["count"]))[:_MOST],
        "containers": sorted(containers, key=lambda one: -one["items_per_step"])[:_MOST],
    }


def _pairs(entries: Iterable[list[Any]]) -> dict[Any, tuple[float, float]]:
    return {tuple(key) if isinstance(key, list) else key: (size, count) for key, size, count in entries}


def _containers(note: Note) -> dict[Any, tuple[float, float]]:
    return {(kind, holder, name): (length, more) for kind, holder, name, length, more in note["containers"]}


def _steady(looks: Iterable[dict[Any, tuple[float, float]]], *, by: int = 0) -> list[Any]:
    """What the last looks all show, each with more than the one before (in the value ``by``)."""
    found = list(looks)
    return [
        (key, values)
        for key, values in found[-1].items()
        if all(
            key in earlier and key in later and later[key][by] > earlier[key][by]
            for earlier, later in zip(found[-_LOOKS:], found[1 - _LOOKS :], strict=False)
        )
    ]
