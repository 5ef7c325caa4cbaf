"""A long recording in pieces, cut where a step begins: each is measured as if it were a recording."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Final

import numpy.typing as npt

from hotloop.measure.spans import OWNERS, of_kind
from hotloop.measure.stepping import Stepping
from hotloop.record.recording import Process, release

#: Rows in which a step's begin is looked for, most recent first.
_LOOK_BACK: Final = (1 << 14, 1 << 18)


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Some rows of a process. ``begin`` (ns since it started) is 0 in the first piece, ``until`` None in the
    last.
    """

    process: Process
    begin: int = 0
    until: int | None = None


def pieces(process: Process, find_steps: Callable[[Process], Stepping], at_once: int) -> Iterator[Piece]:
    """The process whole, or piece by piece where it has many more rows than ``at_once``."""
    rows, origin = process.rows, process.origin_ns
    process = replace(process, start_ns=origin)
    first = begin = 0
    for last, beyond, otherwise in _gaps(process) if len(rows) else ():
        if found := _boundary(process, first, last, find_steps):
            upto, until = found
            yield Piece(process=_part(process, first, upto, begin, until), begin=begin, until=until)
        elif last < beyond:  # nothing before the window
            continue
        first, begin = _step_after(process, beyond, find_steps) or otherwise
    end = _end(rows, first, at_once)
    while end < len(rows):
        found = _boundary(process, first, end, find_steps)
        if found is None:  # a long evaluation, or no steps yet: a larger piece
            end += at_once
            continue
        last, until = found
        yield Piece(process=_part(process, first, last, begin, until), begin=begin, until=until)
        first, begin, end = last, until, _end(rows, last, at_once)
    yield Piece(process=_part(process, first, len(rows), begin, None), begin=begin)


def _gaps(process: Process) -> list[tuple[int, int, tuple[int, int]]]:
    """Where rows are left out, or count for nothing as those of the profiler's window do: the row it begins
    at, the row behind it, and the row and time to go on with where no step begins there.
    """
    note, rows, origin = process.last("profile"), process.rows, process.origin_ns
    opened, closed = note.get("opened_ns"), note.get("closed_ns")
    cuts = [at for at in process.cuts if at < len(rows)]
    found = [(at, at, (at, max(0, int(rows["start"][at]) - origin))) for at in cuts]
    if isinstance(opened, int) and isinstance(closed, int) and origin < opened < closed:
        found.append((_index(rows, opened), _index(rows, closed), (len(rows), closed - origin)))
    return sorted(found)


def _end(rows: npt.NDArray[Any], first: int, at_once: int) -> int:
    """Where a piece that begins with this row ends: what is left is cut evenly."""
    left = len(rows) - first
    count = max(1, ceil(left / at_once))
    return first + ceil(left / count)


def _step_after(
    process: Process, at: int, find_steps: Callable[[Process], Stepping]
) -> tuple[int, int] | None:
    """The first row from row ``at`` on of the first whole step, and its time; None where no step begins."""
    for look in _LOOK_BACK:
        end = min(at + look, len(process.rows))
        if found := _start_of_step(process, at, at, end, find_steps, last=False):
            return found
    return None


def _boundary(
    process: Process, first: int, end: int, find_steps: Callable[[Process], Stepping]
) -> tuple[int, int] | None:
    """The first row of a step shortly before row ``end``, and its time; None where no step begins there."""
    for look in _LOOK_BACK if end > first else ():
        if found := _start_of_step(process, first, max(first, end - look), end, find_steps, last=True):
            return found
    return None


def _start_of_step(
    process: Process, first: int, at: int, end: int, find_steps: Callable[[Process], Stepping], *, last: bool
) -> tuple[int, int] | None:
    """The row and the time at which a step between two rows begins that none before reaches into."""
    origin = process.origin_ns
    starts = find_steps(replace(process, rows=process.rows[at:end])).start[1:].tolist()
    for begins in reversed(starts) if last else starts:
        row = at + _index(process.rows[at:end], origin + begins)
        before = of_kind(replace(process, rows=process.rows[max(first, row - (end - at)) : row]), *OWNERS)
        if len(before) and int(before.end.max()) <= begins:
            return row, begins
    return None


def _part(process: Process, first: int, last: int, begin: int, until: int | None) -> Process:
    origin = process.origin_ns
    workers = []
    for worker in process.workers:
        at = _index(worker.rows, origin + begin) if begin else 0
        to = len(worker.rows) if until is None else _index(worker.rows, origin + until)
        workers.append(replace(worker, rows=worker.rows[at:to]))
        release(worker.rows)
    return replace(process, rows=process.rows[first:last], workers=tuple(workers))


def _index(rows: npt.NDArray[Any], time: int) -> int:
    """The first row that starts at ``time`` or later; reads a few rows, not all."""
    return bisect_left(range(len(rows)), time, key=lambda at: int(rows["start"][at]))
