"""Evaluations hold the time of their own functions before the first row and after the last: metrics."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hotloop.measure.evaluation import Events, Lives, Regions, outside_spans
from hotloop.measure.places import Places, Stack
from hotloop.measure.spans import Bools, Ints, Spans, Table
from hotloop.record import rows as row

#: A function that draws for longer than it evaluates is one that draws: a figure of what the model says.
_DRAWS = tuple(row.LOG_OPS.index(name) for name in ("image", "figure"))

Function = tuple[str, str, int]


def widen(
    regions: Regions,
    spans: Spans,
    events: Events,
    lives: Lives,
    eval_forward: Bools,
    samples: Table,
    places: Places,
) -> Regions:
    """Moves the edges over neighbouring samples whose stack runs through a function that only evaluates.

    Not where figures would come in that take longer than the evaluation: they are told as figures.
    """
    if not len(regions.start) or not len(samples):
        return regions
    training = np.flatnonzero(events.work | (events.fetch & lives.training_row))
    trains = _functions(places.sites.get(int(site)) for site in np.unique(spans.site[training]))
    forward = np.flatnonzero(eval_forward)
    held = _Held(samples, places)
    drawing = np.flatnonzero((spans.kind == row.LOG) & np.isin(spans.obj, _DRAWS) & events.used)
    start, end = regions.start.copy(), regions.end.copy()
    for i in range(len(start)):
        inside = forward[np.searchsorted(spans.start[forward], start[i]) :]
        inside = inside[: np.searchsorted(spans.start[inside], end[i])]
        own = _functions(places.sites.get(int(site)) for site in np.unique(spans.site[inside])) - trains
        if own:
            low = _edge(spans.end[spans.top[training]], start[i], -1, end[i - 1] if i else 0)
            high = _edge(spans.start[spans.top[training]], end[i], 1, np.iinfo(np.int64).max)
            wider = held.back(int(start[i]), low, own), held.on(int(end[i]), high, own)
            outside = (spans.start[drawing] < start[i]) | (spans.start[drawing] >= end[i])
            outside &= (spans.start[drawing] >= wider[0]) & (spans.start[drawing] < wider[1])
            if spans.duration[drawing][outside].sum() <= end[i] - start[i]:
                start[i], end[i] = wider
    # Metrics of one evaluation can run up to the next.
    end[:-1] = np.minimum(end[:-1], start[1:])
    return Regions(
        start=outside_spans(spans, start, -1), end=outside_spans(spans, end, 1), first=regions.first
    )


class _Held:
    """Samples whose stack runs through given functions."""

    def __init__(self, samples: Table, places: Places) -> None:
        self.samples = samples
        self._functions: dict[int, set[Function]] = {
            number: _functions([stack]) for number, stack in places.stacks.items()
        }

    def _in(self, sample: int, functions: set[Function]) -> bool:
        return bool(self._functions.get(int(self.samples.value[sample]), set()) & functions)

    def on(self, edge: int, limit: int, functions: set[Function]) -> int:
        """Past the latest sample after the edge, without a break: it stands for the time before it."""
        at = int(np.searchsorted(self.samples.start, edge, side="right"))
        while at < len(self.samples) and self.samples.start[at] < limit and self._in(at, functions):
            edge = int(self.samples.start[at]) + 1
            at += 1
        return edge

    def back(self, edge: int, limit: int, functions: set[Function]) -> int:
        """The earliest time before the edge that such samples stand for, without a break."""
        at = int(np.searchsorted(self.samples.start, edge)) - 1
        while at >= 0 and self.samples.start[at] > limit and self._in(at, functions):
            weight = int(self.samples.end[at] - self.samples.start[at])
            edge = max(limit, int(self.samples.start[at]) - weight)
            at -= 1
        return edge


def _functions(stacks: Iterable[Stack | None]) -> set[Function]:
    return {frame.function for stack in stacks if stack is not None for frame in stack.frames}


def _edge(times: Ints, at: int, side: int, default: int) -> int:
    """The nearest of sorted times before (-1) or after (1) a time."""
    if side < 0:
        index = int(np.searchsorted(times, at, side="right")) - 1
        return max(int(times[index]), int(default)) if index >= 0 else int(default)
    index = int(np.searchsorted(times, at))
    return int(times[index]) if index < len(times) else int(default)
