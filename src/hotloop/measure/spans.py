"""Rows as arrays: durations in nanoseconds since the process started, and how the intervals nest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hotloop.record import rows as row
from hotloop.record.recording import Process, durations_ns

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: Kinds that own host time. GC, MAKE, MODULE and the rest overlap them and are read on their own.
OWNERS = (
    row.FETCH, row.ITER, row.SHUTDOWN, row.FORWARD, row.BACKWARD, row.OPTIMIZER, row.ZERO_GRAD, row.CLIP,
    row.SCALER, row.SYNC, row.TRANSFER, row.COLLECTIVE, row.SAVE, row.LOG, row.SOCKET, row.COMPILE,
)  # fmt: skip


#: A policy acts, and an evaluation asks, more often in a row than any term of a loss.
_MANY = 8
#: Backwards of one update, where gradients are accumulated.
_FEW = 64


@dataclass(frozen=True, kw_only=True)
class Intervals:
    """Stretches of time in ns, [start, end), sorted and disjoint."""

    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.start)

    def of(self, times: Ints) -> Ints:
        """[n] index of the one that holds a time; -1 outside."""
        return holder(self.start, self.end, times)


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
    names = ("kind", "flags", "site", "obj", "extra", "value")
    columns = {name: np.ascontiguousarray(rows[name]) for name in names}
    return Table(start=start, end=start + durations_ns(rows), **columns)


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


# Passes over loaders


#: Rows inside of a fetch, an iterator's start or end, or a save are part of it.
HOLDS = (row.FETCH, row.ITER, row.SHUTDOWN, row.SAVE)
#: An evaluation batch followed by this many updates before the next batch feeds no training step.
UPDATES_PER_EVALUATION_BATCH = 5


@dataclass(frozen=True, kw_only=True)
class Lives:
    """Every pass over a DataLoader: one ``iter()`` until its last batch. Arrays over lives unless marked."""

    of_row: npt.NDArray[np.int32]  # [rows] the life of a FETCH, ITER or SHUTDOWN row; -1 for others
    iterator: Ints  # iterator id
    loader: Ints  # loader id, 0 unknown
    trains: Bools
    num_batches: Ints
    training_row: Bools  # [rows] FETCH, ITER and SHUTDOWN rows of passes that train
    goes_on: Bools  # began before these rows, which are a later piece of a long recording

    def __len__(self) -> int:
        return len(self.iterator)


@dataclass(frozen=True, kw_only=True)
class Events:
    """The rows that tell training from evaluation: masks over the spans."""

    used: Bools  # not inside a fetch, a save or the like
    fetch: Bools
    work: Bools  # backward, optimizer, or an optimizer step that the scaler skipped
    step: Bools  # optimizer step or skipped one, outermost
    skipped: Bools
    forward: Bools  # of a module
    built: Bools  # forwards that built a graph
    trained: Bools  # [ids] modules that did in training mode
    eval_flags: Bools  # forward with training mode off that trains nothing


def events_of(spans: Spans, *, killed: bool = False) -> Events:
    """Marks the rows that the step rule and the roles are about. Where no optimizer stepped, backwards are
    steps, unless the run was ``killed`` while it still compiled what follows them: no update was finished.
    """
    kind = spans.kind
    used = ~spans.inside(np.isin(kind, HOLDS))
    optimizer = (kind == row.OPTIMIZER) & used
    step = optimizer & ~spans.inside(optimizer)
    skipped = (kind == row.SCALER) & (spans.obj == 1) & used
    if skipped.any():
        holding = np.zeros(len(spans), np.bool_)
        for index in reversed(spans.by_level()[1:]):
            inner = index[optimizer[index] | holding[index]]
            holding[spans.parent[inner]] = True
        skipped &= ~holding
    step |= skipped
    backward = (kind == row.BACKWARD) & used
    if not step.any() and not (killed and _compiles_on(spans, backward)):
        step = backward & ~spans.inside(backward)
    forward, training = (kind == row.FORWARD) & used, (spans.flags & row.FORWARD_TRAINING) != 0
    built = forward & ((spans.flags & row.FORWARD_GRAD) != 0)
    trained = np.zeros(row.U16_MAX + 1, np.bool_)
    trained[spans.obj[built & training]] = True
    # Nothing uses the graphs of many forwards in evaluation mode before one in training mode, or the end.
    items = np.flatnonzero(step | backward | (built & training))
    kinds = np.append((built & training)[items], trained.any())
    unused = np.zeros(len(spans), np.bool_)
    mine = np.flatnonzero(built & ~training & ((spans.flags & row.FORWARD_PARAMS) != 0))
    following = np.searchsorted(spans.start[items], spans.start[mine], side="right")
    unused[mine] = kinds[following] & is_many(spans.site[mine], following)
    return Events(
        used=used,
        fetch=(kind == row.FETCH) & used,
        work=step | backward,
        step=step,
        skipped=skipped,
        forward=forward,
        built=built,
        trained=trained,
        eval_flags=forward & ~training & np.where(built, unused, trained[spans.obj]),
    )


def is_many(site: npt.NDArray[Any], following: Ints) -> Bools:
    """[n] whether so many forwards at one site come before what follows them that no loss is made of all."""
    _, which, counts = np.unique(following << 20 | site, return_inverse=True, return_counts=True)
    return np.asarray(counts[which] >= _MANY)


def _compiles_on(spans: Spans, backward: Bools) -> bool:
    """Whether compiling took most of the time since the first backward, and went on after the last one, of
    few: those of a first update.
    """
    if backward.sum() > _FEW:
        return False
    began = spans.start[backward].min(initial=np.iinfo(np.int64).max)
    late = (spans.kind == row.COMPILE) & (spans.end > began)
    on = spans.start[late].max(initial=0) > spans.end[backward].max(initial=0)
    return bool(on and 2 * spans.exclusive[late].sum() > spans.end.max() - began)


def lives_of(spans: Spans, events: Events, loader_of: dict[int, int], *, later: bool = False) -> Lives:
    """Splits fetches into passes and gives each pass its role; ``later``: rows came before these."""
    owned = np.isin(spans.kind, (row.FETCH, row.ITER, row.SHUTDOWN)) & events.used
    index = np.flatnonzero(owned)
    of_row = np.full(len(spans), -1, np.int32)
    order = index[np.argsort(spans.obj[index], kind="stable")]
    obj = spans.obj[order].astype(np.int64)
    opens = spans.kind[order] == row.ITER
    opens[:1] = True
    opens[1:] |= obj[1:] != obj[:-1]
    life = np.cumsum(opens) - 1
    of_row[order] = life
    count = int(opens.sum())
    iterator = obj[opens]
    loader = _loaders(spans, order[opens], iterator, loader_of)
    fetches = np.flatnonzero(events.fetch)
    real = fetches[(spans.flags[fetches] & row.FETCH_END) == 0]
    num_batches = np.bincount(of_row[real], minlength=count).astype(np.int64)
    trains = _training_lives(spans, events, of_row, loader, fetches, num_batches)
    training_row = np.zeros(len(spans), np.bool_)
    training_row[index] = trains[of_row[index]]
    return Lives(
        of_row=of_row, iterator=iterator, loader=loader, trains=trains, num_batches=num_batches,
        training_row=training_row, goes_on=(spans.kind[order[opens]] != row.ITER) & later,
    )  # fmt: skip


def _loaders(spans: Spans, first: Ints, iterator: Ints, loader_of: dict[int, int]) -> Ints:
    named = np.array([loader_of.get(int(i), 0) for i in iterator], np.int64)
    value = np.where(spans.kind[first] == row.ITER, spans.value[first].astype(np.int64), 0)
    return np.where(value > 0, value, named)


def _training_lives(
    spans: Spans,
    events: Events,
    of_row: npt.NDArray[np.int32],
    loader: Ints,
    fetches: Ints,
    num_batches: Ints,
) -> Bools:
    """A pass trains if a backward or an update lies between its batches, unless they go to evaluation."""
    count = len(loader)
    work = spans.start[np.flatnonzero(events.work)]
    life = of_row[fetches]
    before = np.searchsorted(work, spans.start[fetches])  # work done when the fetch began
    first = np.full(count, len(work) + 1, np.int64)
    last = np.full(count, -1, np.int64)
    np.minimum.at(first, life, before)
    np.maximum.at(last, life, before)
    between = last > first

    asked = spans.start[np.flatnonzero(events.used & np.isin(spans.kind, (row.FETCH, row.ITER)))]
    upcoming = np.append(asked, np.iinfo(np.int64).max)[np.searchsorted(asked, spans.start[fetches], "right")]
    until_next = np.searchsorted(work, upcoming) - before
    evaluates = _feeds_evaluation(spans, events, fetches)
    evaluates &= (until_next == 0) | (until_next >= UPDATES_PER_EVALUATION_BATCH)
    votes = np.bincount(life[evaluates], minlength=count)
    trains = between & (votes * 2 <= np.maximum(num_batches, 1))

    single = (num_batches[life] == 1) & (until_next > 0) & ~evaluates
    trains[life[single]] = True
    # One batch, and that of another loader beside it: what the other passes of its loader do, or what comes
    # as often as what trains. A look at a batch before training is none of them.
    unclear = life[(num_batches[life] == 1) & (until_next == 0) & (before > 0) & ~evaluates]
    _, which = np.unique(loader, return_inverse=True)
    taken = np.bincount(which, num_batches * (votes == 0))[which]
    often = 2 * taken[unclear] >= taken[trains].max(initial=1)
    trains[unclear] |= (loader[unclear] > 0) & (np.isin(loader[unclear], loader[trains]) | often)
    if not len(work):  # killed before the first backward: a gradient was being built for these batches
        trains[:] = bool(events.built.any()) or not events.forward.any()
    return trains


def _feeds_evaluation(spans: Spans, events: Events, fetches: Ints) -> Bools:
    """[fetches] whether the next forward, backward or update after the batch is an evaluation forward."""
    model = np.flatnonzero(events.work | events.forward)
    flags = np.append(events.eval_flags[model], False)
    return flags[np.searchsorted(spans.start[model], spans.end[fetches])]
