"""Which phase the host is in at every moment, thread by thread."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from hotloop.logs.trace.causes import OPERATOR, STICKY, TRANSPARENT
from hotloop.logs.trace.table import Events, Ints
from hotloop.phases import COLUMN

#: In no operator, call or known annotation.
NONE: Final = -1
#: Phases in which the host prepares work for the device.
LAUNCHING: Final = tuple(COLUMN[name] for name in ("forward", "backward", "optimizer"))
#: Python between two operators of the model is the cost of launching them; a longer stretch is the script's.
LAUNCH_STRETCH_NS: Final = 200_000
#: Times rounded to microseconds let a child seem to end after its parent by this much.
_ROUNDING_NS: Final = 2_000
_SLICE: Final = 65_536


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """A value for every moment: ``values[i]`` from ``times[i]`` on, ``NONE`` before the first."""

    times: Ints
    values: Ints

    def at(self, times: Ints) -> Ints:
        """The values at some times."""
        if not len(self.times):
            return np.full(len(times), NONE, dtype=np.int64)
        found = np.searchsorted(self.times, times, side="right") - 1
        return np.where(found >= 0, self.values[np.maximum(found, 0)], NONE)


@dataclass(frozen=True, kw_only=True)
class Host:
    """The host's events walked once: phase and own time of each, and a timeline per thread."""

    calls: Events
    phase: Ints  # NONE where nothing is known
    self_ns: Ints  # without the events inside
    timelines: dict[int, Timeline]

    def view(self, thread: int, main: int) -> Timeline:
        """What a thread does, or the main thread while it does nothing; short Python between operators is
        launching, longer is ``other``.
        """
        own, other = (self.timelines.get(one, _EMPTY) for one in (thread, main))
        times = np.unique(np.concatenate([own.times, other.times]))
        mine = own.at(times)
        return _filled(times, np.where(mine == NONE, other.at(times), mine))


_EMPTY: Final = Timeline(times=np.zeros(0, np.int64), values=np.zeros(0, np.int64))


def walk(calls: Events, own: Ints) -> Host:
    """Walk events sorted by thread and start; ``own`` as `causes.own_phases` gives them."""
    phase = np.full(len(calls), NONE, dtype=np.int8)
    self_ns = calls.end - calls.start
    timelines = {}
    bounds = np.flatnonzero(np.diff(calls.thread, prepend=-1, append=-1))
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        part = slice(first, last)
        start, end = calls.start[part], calls.end[part]
        innermost, outer = nested(start, end)
        phase[part] = _inherited(own[part], outer)
        inside = outer >= 0
        shared = (np.minimum(end, end[outer]) - start)[inside]
        self_ns[part] -= np.bincount(outer[inside], shared, minlength=last - first).astype(np.int64)
        of = np.append(phase[part], np.int8(NONE))  # position -1 is no event
        timelines[int(calls.thread[first])] = _merged(innermost.times, of[innermost.values])
    return Host(calls=calls, phase=phase, self_ns=self_ns, timelines=timelines)


def nested(start: Ints, end: Ints) -> tuple[Timeline, Ints]:
    """Position of the innermost event at every moment, and of each event's enclosing one; -1 for none.

    Events of one thread by start, the enclosing one first.
    """
    times, values, outer = array("q"), array("i"), array("i")
    stack: list[tuple[int, int]] = [(2**63, -1)]  # end, position
    for at, begins, ends in _numbers(np.arange(len(start)), start, end):
        while stack[-1][0] <= begins or stack[-1][0] + _ROUNDING_NS < ends:
            closes = stack.pop()[0]
            times.append(closes if closes < begins else begins)
            values.append(stack[-1][1])
        outer.append(stack[-1][1])
        stack.append((ends, at))
        times.append(begins)
        values.append(at)
    while len(stack) > 1:
        times.append(stack.pop()[0])
        values.append(stack[-1][1])
    ordered = np.maximum.accumulate(np.frombuffer(times, dtype=np.int64))
    return _merged(ordered, np.frombuffer(values, np.int32)), np.frombuffer(outer, np.int32)


def _inherited(own: Ints, outer: Ints) -> Ints:
    """Phases of one thread's events, from their own and the enclosing ones'."""
    phases = array("b")
    for code, at in _numbers(own, outer):
        around = phases[at] if at >= 0 else NONE
        if around in STICKY or code == TRANSPARENT:
            code = around
        elif code == OPERATOR:
            code = COLUMN["forward"] if around == NONE else around
        phases.append(code)
    return np.frombuffer(phases, dtype=np.int8)


def _numbers(*columns: Ints) -> Iterator[tuple[int, ...]]:
    """Rows as Python numbers, a slice at a time: all at once they are ten times the columns."""
    for first in range(0, len(columns[0]), _SLICE):
        yield from zip(*(column[first : first + _SLICE].tolist() for column in columns), strict=True)


def _merged(times: Ints, values: Ints) -> Timeline:
    """Without empty stretches and without changes from a value to itself."""
    last = np.append(times[1:] > times[:-1], True)
    times, values = times[last], values[last]
    changes = np.append(True, values[1:] != values[:-1])
    return Timeline(times=times[changes], values=values[changes])


def _filled(times: Ints, values: Ints) -> Timeline:
    """Stretches in which nothing was recorded, named by what lies around them."""
    line = _merged(times, values) if len(times) else _EMPTY
    times, values = line.times, line.values.copy()
    middle = np.flatnonzero(values[1:-1] == NONE) + 1
    short = middle[times[middle + 1] - times[middle] <= LAUNCH_STRETCH_NS]
    before, after = values[short - 1], values[short + 1]
    launching = np.isin(after, LAUNCHING)
    values[short] = np.where(launching, after, np.where(np.isin(before, LAUNCHING), before, NONE))
    values[values == NONE] = COLUMN["other"]
    return Timeline(times=times, values=values)
