"""When a device worked, and on what."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hotloop.logs.trace.table import Events, Ints


@dataclass(frozen=True, kw_only=True)
class Spans:
    """Stretches of time that do not touch, in order. Times in ns."""

    start: Ints
    end: Ints

    @property
    def total_ns(self) -> int:
        """The time they cover."""
        return int((self.end - self.start).sum())

    def covered(self, times: Ints) -> Ints:
        """How much of the time before each of ``times`` they cover."""
        if not len(self.start):
            return np.zeros(len(times), dtype=np.int64)
        before = np.concatenate([[0], np.cumsum(self.end - self.start)])
        at = np.searchsorted(self.start, times, side="right")
        still_open = np.maximum(self.end[np.maximum(at - 1, 0)] - times, 0)
        return np.where(at > 0, before[at] - still_open, 0)

    def gaps(self, start: int, end: int) -> Spans:
        """What they leave free of a window that holds them."""
        starts, ends = np.append(start, self.end), np.append(self.start, end)
        free = ends > starts
        return Spans(start=starts[free], end=ends[free])


def union(events: Events) -> Spans:
    """The time in which any of the events ran."""
    order = np.argsort(events.start, kind="stable")
    start, reached = events.start[order], np.maximum.accumulate(events.end[order])
    if not len(start):
        return Spans(start=start, end=reached)
    first = np.append(True, start[1:] > reached[:-1])
    return Spans(start=start[first], end=reached[np.append(first[1:], True)])


def clipped(events: Events, start: int, end: int) -> Events:
    """The events of a window, cut to it."""
    inside = events.where((events.end > start) & (events.start < end))
    columns = dict(vars(inside))
    columns["start"] = np.maximum(inside.start, start)
    columns["end"] = np.minimum(inside.end, end)
    return Events(**columns)
