"""Where one step ends and the next begins.

A step is one batch of the loader that drives training: it begins with the first training fetch after work
was done. Without a loader it is one round of the optimizers: it ends with the last update before an optimizer
that already stepped in it steps again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hotloop.measure.passes import Events, Lives
from hotloop.measure.spans import Bools, Ints, Spans, holder
from hotloop.record import rows as row

#: So many times the batches of a usual step before the first work: the script passes over those it had
#: already seen when it was stopped.
PASSED_OVER = 8
#: Fewer training batches than this share of the updates: the loader only filled a buffer, updates drive.
BATCHES_PER_UPDATE = 0.05


@dataclass(frozen=True, kw_only=True)
class Stepping:
    """Step boundaries in ns. ``start[i + 1] == end[i]``; ``span`` runs from the first batch asked for."""

    start: Ints
    end: Ints
    span: tuple[int, int]
    by_loader: bool
    num_updates: int
    backwards_per_update: float
    driving: Bools  # [lives] passes over the loader that drives the steps
    ready: (
        int  # before this the process starts up: the span's start, without steps the first batch or forward
    )

    def __len__(self) -> int:
        return len(self.start)

    def of(self, times: Ints) -> Ints:
        """[n] step that holds a time; -1 outside."""
        return holder(self.start, self.end, times)


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
    if by_loader:
        start, end = _by_loader(spans, events, lives, fetches, driving, rounds)
        asked = np.flatnonzero(trains & (lives.of_row >= 0) & (spans.level == 0))
        opening = int(spans.start[asked[0]]) if len(asked) else 0
        if len(start) and start[0] > spans.start[fetches[driving[lives.of_row[fetches]]][0]]:
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
    """Indices of the last of these optimizer steps in every round."""
    steps = np.flatnonzero(taken)
    ids = _optimizer_ids(spans, events, steps)
    if len(steps) == 0 or (ids == ids[0]).all():
        return steps
    last: list[int] = []
    seen: set[int] = set()
    for at, optimizer in enumerate(ids.tolist()):
        if optimizer in seen:
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
