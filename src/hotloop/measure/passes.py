"""Which rows are training's, and which passes over a loader train."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hotloop.measure.spans import Bools, Ints, Spans
from hotloop.record import rows as row

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
    eval_flags: Bools  # forward of a trained module with gradients and training mode off


def events_of(spans: Spans) -> Events:
    """Marks the rows that the step rule and the roles are about."""
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
    if not step.any():
        step = backward & ~spans.inside(backward)
    forward, training = (kind == row.FORWARD) & used, (spans.flags & row.FORWARD_TRAINING) != 0
    built = forward & ((spans.flags & row.FORWARD_GRAD) != 0)
    trained = np.zeros(row.U16_MAX + 1, np.bool_)
    trained[spans.obj[built & training]] = True
    return Events(
        used=used,
        fetch=(kind == row.FETCH) & used,
        work=step | backward,
        step=step,
        skipped=skipped,
        forward=forward,
        built=built,
        trained=trained,
        eval_flags=forward & ~built & ~training & trained[spans.obj],
    )


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
    # One batch, and that of another loader beside it: what the other passes of its loader do.
    # A look at a batch before training is none of them.
    unclear = life[(num_batches[life] == 1) & (until_next == 0) & (before > 0) & ~evaluates]
    trains[unclear] |= (loader[unclear] > 0) & np.isin(loader[unclear], loader[trains])
    if not len(work):  # killed before the first backward: a gradient was being built for these batches
        trains[:] = bool(events.built.any()) or not events.forward.any()
    return trains


def _feeds_evaluation(spans: Spans, events: Events, fetches: Ints) -> Bools:
    """[fetches] whether the next forward, backward or update after the batch is an evaluation forward."""
    model = np.flatnonzero(events.work | events.forward)
    flags = np.append(events.eval_flags[model], False)
    return flags[np.searchsorted(spans.start[model], spans.end[fetches])]
