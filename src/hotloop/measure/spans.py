"""Rows as arrays: durations in nanoseconds since the process started, and how the intervals nest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hotloop.record import rows as row
from hotloop.record.recording import Process

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: Kinds that own host time. GC, MAKE, MODULE and the rest overlap them and are read on their own.
OWNERS = (
    row.FETCH, row.ITER, row.SHUTDOWN, row.FORWARD, row.BACKWARD, row.OPTIMIZER, row.ZERO_GRAD, row.CLIP,
    row.SCALER, row.SYNC, row.TRANSFER, row.COLLECTIVE, row.SAVE, row.LOG, row.SOCKET, row.COMPILE,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of some kinds as columns; ``start`` and ``end`` are ns since the process started."""

    start: Ints
    end: Ints
    kind: npt.NDArray[np.uint8]
    flags: npt.NDArray[np.uint8]
    site: npt.NDArray[np.uint16]
    obj: npt.NDArray[np.uint16]
    extra: npt.NDArray[np.uint16]
    value: npt.NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.start)

    @property
    def duration(self) -> Ints:
        """[n] ns."""
        return self.end - self.start

    def began(self, begin: int, end: int) -> Bools:
        """[n] whether a row began between two times."""
        return (self.start >= begin) & (self.start < end)

    def take(self, index: Any) -> Table:
        """The rows picked by a mask or by indices."""
        return Table(**{name: getattr(self, name)[index] for name in Table.__dataclass_fields__})


@dataclass(frozen=True, kw_only=True)
class Spans(Table):
    """Intervals that own host time, sorted by start, properly nested.

    ``parent`` is the index of the enclosing row (-1: none), ``level`` its depth, ``top`` the outermost
    ancestor (itself at level 0), ``exclusive`` the ns not inside a child.
    """

    parent: npt.NDArray[np.int32]
    level: npt.NDArray[np.uint8]
    top: npt.NDArray[np.int32]
    exclusive: Ints

    def inside(self, marked: Bools) -> Bools:
        """[n] whether a strict ancestor of the row is marked."""
        result = np.zeros(len(self), np.bool_)
        for index in self.by_level()[1:]:
            parent = self.parent[index]
            result[index] = marked[parent] | result[parent]
        return result

    def by_level(self) -> list[Ints]:
        """Indices of the rows of each level, outermost first (at least one list)."""
        deepest = int(self.level.max()) if len(self) else 0
        return [np.flatnonzero(self.level == depth) for depth in range(deepest + 1)]


def wall_ns(process: Process) -> int:
    """From the process's start to its end, or to its last row where that is later."""
    origin = process.origin_ns
    last = process.end_ns
    if len(process.rows):
        tail = table(process.rows[-64:], origin)
        last = max(last, origin + int(tail.end.max()))
    return max(0, last - origin)


def table(rows: npt.NDArray[Any], origin: int) -> Table:
    """Rows of one process as columns, times counted from ``origin``."""
    start = np.maximum(rows["start"].astype(np.int64) - origin, 0)
    flags = np.ascontiguousarray(rows["flags"])
    duration = rows["dur"].astype(np.int64)
    long = (flags & row.LONG) != 0
    if long.any():
        duration[long] *= 1000
    columns = {name: np.ascontiguousarray(rows[name]) for name in ("kind", "site", "obj", "extra", "value")}
    return Table(start=start, end=start + duration, flags=flags, **columns)


def of_kind(process: Process, *kinds: int, origin: int | None = None) -> Table:
    """The rows of some kinds of a process, times counted from its start or from ``origin``."""
    rows = process.rows
    wanted = np.zeros(256, np.bool_)
    wanted[list(kinds)] = True
    return table(rows[wanted[rows["kind"]]], process.origin_ns if origin is None else origin)


def nest(rows: Table) -> Spans:
    """Sorts intervals, repairs what overlaps (a child ends with its parent), and finds every parent."""
    rows = _sorted(rows)
    end = rows.end.copy()
    parent, level = _levels(rows.start, end)
    duration = end - rows.start
    exclusive = duration.copy()
    inner = parent >= 0
    if inner.any():
        spent = np.bincount(parent[inner], weights=duration[inner].astype(np.float64), minlength=len(rows))
        exclusive -= spent.astype(np.int64)
        np.maximum(exclusive, 0, out=exclusive)
    top = np.arange(len(rows), dtype=np.int32)
    for depth in range(1, int(level.max()) + 1 if len(rows) else 0):
        index = np.flatnonzero(level == depth)
        top[index] = top[parent[index]]
    columns = {**vars(rows), "end": end}
    return Spans(**columns, parent=parent, level=level, top=top, exclusive=exclusive)


def owners(process: Process) -> Spans:
    """The intervals that own a process's host time. An optimizer's step that calls a closure begins where the
    first backward in it ends: what comes before, a framework's whole training step, is not the optimizer's.
    """
    spans = nest(of_kind(process, *OWNERS))
    inner = np.flatnonzero((spans.kind == row.BACKWARD) & (spans.parent >= 0))
    inner = inner[spans.kind[spans.parent[inner]] == row.OPTIMIZER]
    if not len(inner):
        return spans
    outer, first = np.unique(spans.parent[inner], return_index=True)
    rows = spans.take(np.arange(len(spans)))
    rows.start[outer] = spans.end[inner[first]]
    return nest(rows)


def _sorted(rows: Table) -> Table:
    """By start, the longer of two that start together first."""
    start, end = rows.start, rows.end
    if len(rows) < 2:
        return rows
    ordered = (start[1:] > start[:-1]) | ((start[1:] == start[:-1]) & (end[1:] <= end[:-1]))
    if ordered.all():
        return rows
    return rows.take(np.lexsort((-end, start)))


def _levels(start: Ints, end: Ints) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Parent and depth of every row; shortens ``end`` in place where rows overlap without nesting."""
    parent, level = np.full(len(start), -1, np.int32), np.zeros(len(start), np.uint8)
    # Most rows have no other inside, or one: of these no stack is needed.
    outer = np.flatnonzero(start >= np.append(np.int64(-1 << 62), np.maximum.accumulate(end)[:-1]))
    size = np.diff(np.append(outer, len(start)))
    only = outer[size == 2] + 1
    parent[only], level[only] = only - 1, 1
    end[only] = np.minimum(end[only], end[only - 1])
    rest = np.flatnonzero(np.repeat(size > 2, size))
    inside, depth = [-1] * len(rest), [0] * len(rest)
    ends, open_rows = end[rest].tolist(), []  # type: list[int], list[int]
    for i, begin in enumerate(start[rest].tolist()):
        while open_rows and ends[open_rows[-1]] <= begin:
            open_rows.pop()
        if open_rows:
            inside[i] = open_rows[-1]
            depth[i] = min(len(open_rows), 255)
            ends[i] = min(ends[i], ends[inside[i]])
        open_rows.append(i)
    if len(rest):
        found = np.array(inside)
        parent[rest], level[rest] = np.where(found >= 0, rest[found], -1), depth
        end[rest] = ends
    return parent, level


def holder(start: Ints, end: Ints, times: Ints) -> Ints:
    """[times] index of the interval that holds each, -1: none. They are sorted and disjoint."""
    if not len(start):
        return np.full(len(times), -1, np.int64)
    at = np.searchsorted(start, times, side="right") - 1
    return np.asarray(np.where((at >= 0) & (times < end[at]), at, -1))


def innermost(spans: Spans, times: Ints) -> Ints:
    """[times] index of the innermost row around each; -1 in gaps."""
    owner = np.full(len(times), -1, np.int64)
    for index in spans.by_level():
        at = holder(spans.start[index], spans.end[index], times)
        owner[at >= 0] = index[at[at >= 0]]
    return owner
