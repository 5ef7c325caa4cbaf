"""Where one step ends and the next begins.

A step is one batch of the loader that drives training: it begins with the first training fetch after work
was done. Without a loader it is one round of the optimizers: it ends with the last update before an optimizer
that already stepped in it steps again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hotloop.measure.spans import OWNERS, Bools, Events, Intervals, Ints, Lives, Spans, of_kind
from hotloop.measure.steps import Floats, Steps
from hotloop.record import rows as row
from hotloop.record.recording import Process, release

#: So many times the batches of a usual step before the first work: the script passes over those it had
#: already seen when it was stopped.
PASSED_OVER = 8
#: Fewer training batches than this share of the updates: the loader only filled a buffer, updates drive.
BATCHES_PER_UPDATE = 0.05
#: A loop asks its new iterator for a batch within less.
_AT_ONCE_NS: Final = 100_000_000


@dataclass(frozen=True, kw_only=True)
class Stepping(Intervals):
    """The steps. ``start[i + 1] == end[i]``; ``span`` runs from the first batch asked for."""

    span: tuple[int, int]
    by_loader: bool
    num_updates: int
    backwards_per_update: float
    driving: Bools  # [lives] passes over the loader that drives the steps
    ready: (
        int  # before this the process starts up: the span's start, without steps the first batch or forward
    )


@dataclass(frozen=True, kw_only=True)
class Seen:
    """The rows of a process, and what was found in them."""

    spans: Spans
    events: Events
    lives: Lives
    stepping: Stepping


def bounded(stepping: Stepping, begin: int, until: int | None) -> Stepping:
    """The steps of a piece of a long recording, which begins and ends (ns) where a step of the whole does."""
    start, end = stepping.start.copy(), stepping.end.copy()
    if begin and len(start):
        start[0] = begin
    if until is not None and len(end):
        end[-1] = until
    span = (int(start[0]), int(end[-1])) if len(start) else stepping.span
    return replace(stepping, start=start, end=end, span=span, ready=begin or stepping.ready)


def find_steps(spans: Spans, events: Events, lives: Lives, eval_forward: Bools) -> Stepping:
    """Applies the rule."""
    rounds = _rounds(spans, events, events.step)
    trains = lives.training_row
    fetches = np.flatnonzero(events.fetch & trains & (spans.level == 0))
    driving, num_batches = _driving(spans, lives, fetches)
    by_loader = num_batches > 0 and len(rounds) > 0 and num_batches >= BATCHES_PER_UPDATE * len(rounds)
    asked = spans.start[fetches[driving[lives.of_row[fetches]]]]
    if by_loader and len(asked):  # what made most updates before it is the training
        by_loader = bool(2 * (spans.start[rounds] > asked[0]).sum() >= len(rounds))
    if by_loader:
        start, end = _by_loader(spans, events, lives, fetches, driving, rounds)
        rows = np.flatnonzero(trains & (lives.of_row >= 0) & (spans.level == 0))
        opening = int(spans.start[rows[0]]) if len(rows) else 0
        made = spans.end[rows[spans.start[rows] < asked[0]]] if len(asked) else rows[:0]
        if len(made) and asked[0] - made.max() > _AT_ONCE_NS:
            opening = int(asked[0])  # the iterator was made before, for later
        if len(start) and start[0] > asked[0]:
            opening = int(start[0])
    else:
        start, end = _by_updates(spans, events, rounds, eval_forward)
        opening = int(start[0]) if len(start) else 0
    if len(start):
        opening = min(opening, int(start[0]))
        start[0] = opening
    span = (opening, int(end[-1])) if len(start) else (0, 0)
    num_updates, per_update = _updates(spans, events)
    return Stepping(
        start=start, end=end, span=span, by_loader=by_loader, num_updates=num_updates,
        backwards_per_update=per_update, driving=driving,
        ready=span[0] if len(start) else _ready(spans, events),
    )  # fmt: skip


def _ready(spans: Spans, events: Events) -> int:
    kinds = (row.FETCH, row.ITER, row.FORWARD, row.BACKWARD, row.OPTIMIZER)
    first = np.flatnonzero(np.isin(spans.kind, kinds) & events.used)
    return int(spans.start[spans.top[first[0]]]) if len(first) else int(np.iinfo(np.int64).max)


def _rounds(spans: Spans, events: Events, taken: Bools) -> Ints:
    """Indices of the last of these optimizer steps in every round, in which each optimizer steps once.
    Trainings that come one after the other, each with an optimizer of its own, share none.
    """
    steps = np.flatnonzero(taken)
    ids = _optimizer_ids(spans, events, steps)
    if len(steps) == 0 or (ids == ids[0]).all():
        return steps
    order = [*enumerate(ids.tolist())]
    first, final = ({one: at for at, one in way} for way in (reversed(order), order))
    last: list[int] = []
    seen: set[int] = set()
    for at, optimizer in order:
        over = at == first[optimizer] and all(first[one] < final[one] < at for one in seen)
        if optimizer in seen or (over and seen):
            last.append(at - 1)
            seen = set()
        seen.add(optimizer)
    last.append(len(ids) - 1)
    return steps[np.array(last, np.int64)]


def _optimizer_ids(spans: Spans, events: Events, steps: Ints) -> Ints:
    """Ids of the optimizers that stepped; a skipped step counts as one of that which steps most."""
    ids = spans.obj[steps].astype(np.int64)
    ids[spans.kind[steps] == row.BACKWARD] = 0
    skipped = events.skipped[steps]
    if not skipped.any():
        return ids
    done = ids[~skipped]
    ids[skipped] = np.bincount(done).argmax() if len(done) else 0
    return ids


def _driving(spans: Spans, lives: Lives, fetches: Ints) -> tuple[Bools, int]:
    """The passes of the training loader with the most batches; of equals the one asked first."""
    none = np.zeros(len(lives), np.bool_)
    if not len(lives) or not lives.trains.any():
        return none, 0
    # A pass whose loader is unknown stands for itself.
    key = np.where(lives.loader > 0, lives.loader, -lives.iterator - 1)
    trained = np.flatnonzero(lives.trains)
    names, where = np.unique(key[trained], return_inverse=True)
    batches = np.bincount(where, weights=lives.num_batches[trained])
    asked = np.full(len(names), np.iinfo(np.int64).max, np.int64)
    place = np.full(len(lives), -1, np.int64)
    place[trained] = where
    np.minimum.at(asked, place[lives.of_row[fetches]], spans.start[fetches])
    near = np.flatnonzero(batches >= 0.98 * batches.max())
    chosen = near[np.argmin(asked[near])]
    return lives.trains & (key == names[chosen]), int(batches[chosen])


def _by_loader(
    spans: Spans, events: Events, lives: Lives, fetches: Ints, driving: Bools, rounds: Ints
) -> tuple[Ints, Ints]:
    work = np.flatnonzero(events.work)
    began = spans.start[fetches]
    done = np.searchsorted(spans.start[work], began)
    closed = np.searchsorted(spans.start[rounds], began)
    opens = driving[lives.of_row[fetches]]
    opens[1:] |= closed[1:] > closed[:-1]
    at = _without_passed_over(np.flatnonzero(opens), done)
    at = at[np.append(True, np.diff(done[at]) > 0)] if len(at) else at
    bounds = began[at]
    total = len(work)
    if not len(bounds):
        return bounds, bounds
    if done[at[-1]] == total:  # a fetch after the last work: the end of an epoch, or one batch too many
        return bounds[:-1].copy(), bounds[1:].copy()
    tail = work[int(done[at[-1]]) :]
    finished = tail[events.step[tail]]
    last = finished[-1] if len(finished) else tail[-1]
    return bounds.copy(), np.append(bounds[1:], spans.end[spans.top[last]])


def _without_passed_over(at: Ints, done: Ints) -> Ints:
    """The fetches without the many that came before any work, of a script that resumes within an epoch."""
    _, counts = np.unique(done[at], return_counts=True)
    if len(counts) < 2 or done[at[0]] > 0:
        return at
    usual = int(np.median(counts[1:]))
    return at[counts[0] - usual :] if counts[0] > PASSED_OVER * usual else at


def _by_updates(spans: Spans, events: Events, rounds: Ints, eval_forward: Bools) -> tuple[Ints, Ints]:
    if not len(rounds):
        none = np.zeros(0, np.int64)
        return none, none
    end = np.unique(spans.end[spans.top[rounds]])
    kinds = (row.FORWARD, row.BACKWARD, row.ZERO_GRAD, row.OPTIMIZER, row.SCALER)
    model = np.flatnonzero(np.isin(spans.kind, kinds) & events.used & ~eval_forward)
    model = model[spans.start[model] <= spans.start[rounds[0]]]
    # A call site that comes back belongs to the loop; a forward that only tried the model does not.
    again = np.bincount(spans.site)[spans.site[model]] * 2 >= min(len(rounds), 4)
    first = model[again][0] if again.any() else rounds[0]
    opening = int(spans.start[spans.top[first]])
    return np.append(opening, end[:-1]), end


def _updates(spans: Spans, events: Events) -> tuple[int, float]:
    """Rounds of updates that were not skipped, and backwards per update."""
    backward = int(((spans.kind == row.BACKWARD) & events.work).sum())
    done = events.step & ~events.skipped
    if not done.any():
        return 0, float(max(1, backward))
    return len(_rounds(spans, events, done)), max(1.0, backward / int(events.step.sum()))


MAX_BLOCKS: Final = 20
LEAST_BLOCKS: Final = 4


def steady_seconds(steps: Steps) -> Floats:
    """Lengths of the steady steps in seconds; of all steps where none is steady."""
    seconds = steps.end_s - steps.start_s
    mask = np.asarray(steps.steady, bool)
    return seconds[mask] if mask.any() else seconds


def block_means(values: Floats, least: int = LEAST_BLOCKS) -> Floats:
    """[blocks] means of consecutive values; empty with fewer values than ``least`` blocks of two need."""
    if len(values) < 2 * least:
        return np.zeros(0)
    return np.array([block.mean() for block in np.array_split(values, min(MAX_BLOCKS, len(values) // 2))])


# Pieces of a run


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
