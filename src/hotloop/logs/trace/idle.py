"""Why the device was idle: every idle moment charged to what the host did instead of feeding it.

The event that ends a gap was launched by a call on some thread of the host. Until that call the gap belongs
to what that thread did (or the main thread, while it did nothing); from the call on, to the call itself. An
event that had been launched well before the gap began, or by a call that is not recorded, is not late because
of the host: its gap is ``queued``.

A wait for the device (``.item()``, a blocking copy) costs in the gaps that follow it: the host, let go, has
to launch anew what it could have launched meanwhile. Such gaps are charged to the wait, up to the time that
it waited for a working device: a host that runs ahead can fill no more than that.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from hotloop.logs.trace.causes import OPERATOR, STICKY, TRANSPARENT, matching
from hotloop.logs.trace.table import Events, Ints, Spans, union
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


#: A launch takes this long to reach an idle device at most; what was launched earlier than this before the
#: gap was queued. (5 to 10 us are usual on NVIDIA devices.)
LAUNCH_LATENCY_NS: Final = 20_000
#: Where launching is what holds the device up, an operator's Python and dispatch lie in a gap, no more. Gaps
#: seen under the profiler: 20 to 500 us. What is longer than this is other work of the host.
LAUNCH_GAP_NS: Final = 1_000_000
#: A wait for the device that was over at once gives the host nothing to catch up with.
MIN_WAIT_NS: Final = 5_000


#: Kinds of pieces: the host did other things; the work was queued and did not start; the host was launching
#: the next small operation.
HELD, QUEUED, LAUNCHED = range(3)


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """Idle time in pieces: when, how long, why. What is charged to a wait has the wait's time."""

    at: Ints
    ns: npt.NDArray[np.float64]
    phase: Ints  # column of hotloop.phases
    kind: Ints  # HELD, QUEUED or LAUNCHED

    def by_phase(self, *kinds: int) -> npt.NDArray[np.float64]:
        """Seconds per phase, of all kinds or of some."""
        chosen = np.isin(self.kind, kinds) if kinds else np.ones(len(self.kind), dtype=bool)
        return np.bincount(self.phase[chosen], self.ns[chosen] / 1e9, len(COLUMN)).astype(np.float64)


def idle_pieces(host: Host, main: int, events: Events, gaps: Spans) -> Pieces:
    """Charge the gaps of one device. ``events``: all of its events, those after the last gap included."""
    call, followed = _launching_calls(host, events, gaps)
    known = call >= 0
    launched = np.where(known, host.calls.start[call], gaps.end) if len(host.calls) else gaps.end
    thread = np.where(known, host.calls.thread[call], main) if len(host.calls) else np.full(len(call), main)
    until = np.clip(launched, gaps.start, gaps.end)
    parts = []
    for one in np.unique(thread).tolist():
        mine = (thread == one) & (until > gaps.start)
        parts.append(cut(host.view(one, main), Spans(start=gaps.start[mine], end=until[mine])))
    late = gaps.end > until
    parts.append(
        Pieces(
            at=until[late],
            ns=(gaps.end - until)[late].astype(np.float64),
            phase=_named(host.phase[call[late]]) if len(host.calls) else np.zeros(0, np.int64),
            kind=np.where(gaps.start - launched > LAUNCH_LATENCY_NS, QUEUED, HELD)[late],
        )
    )
    pieces = _joined(parts)
    gap = np.searchsorted(gaps.start, pieces.at, side="right") - 1
    short = (gaps.end - gaps.start)[gap] <= LAUNCH_GAP_NS
    launching = short & (pieces.kind == HELD) & np.isin(pieces.phase, LAUNCHING)
    kind = np.where((followed & ~known)[gap], QUEUED, np.where(launching, LAUNCHED, pieces.kind))
    pieces = replace(pieces, kind=kind)
    waits = _waits(host, np.append(np.unique(thread), main), union(events))
    return _charged_to_waits(pieces, *waits)


def cut(line: Timeline, spans: Spans) -> Pieces:
    """Spans cut where the timeline changes."""
    bounds = np.unique(np.concatenate([line.times, spans.start, spans.end]))
    starts, ends = bounds[:-1], bounds[1:]
    inside = spans.covered(ends) - spans.covered(starts) > 0
    at = starts[inside]
    return Pieces(
        at=at,
        ns=(ends - starts)[inside].astype(np.float64),
        phase=_named(line.at(at)),
        kind=np.full(len(at), HELD),
    )


def _launching_calls(host: Host, events: Events, gaps: Spans) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Position of the call that launched the event after each gap, -1 if not known; whether there is one."""
    order = np.argsort(events.start, kind="stable")
    following = np.searchsorted(events.start[order], gaps.end, side="left")
    followed = following < len(order)
    event = order[np.minimum(following, len(order) - 1)]
    call = matching(events.correlation[event], host.calls.correlation)
    return np.where(followed, call, -1), followed


def _named(phase: Ints) -> Ints:
    return np.where(phase == NONE, COLUMN["other"], phase)


def _waits(host: Host, threads: Ints, busy: Spans) -> tuple[Ints, Ints, Ints]:
    """Starts, phases and lengths of the calls in which a thread waited for a working device, by start."""
    calls = host.calls
    waiting = np.isin(host.phase, (COLUMN["sync"], COLUMN["transfer"]))
    waiting &= (calls.correlation >= 0) & np.isin(calls.thread, threads)
    start, end, phase = calls.start[waiting], calls.end[waiting], host.phase[waiting]
    length = busy.covered(end) - busy.covered(start)
    (long,) = np.nonzero(length >= MIN_WAIT_NS)
    order = long[np.argsort(start[long], kind="stable")]
    return start[order], phase[order], length[order]


def _charged_to_waits(pieces: Pieces, start: Ints, phase: Ints, length: Ints) -> Pieces:
    """Launching after a wait is the wait's, up to the wait's length."""
    if not len(start):
        return pieces
    wait = np.searchsorted(start, pieces.at, side="right") - 1
    (after,) = np.nonzero((wait >= 0) & np.isin(pieces.phase, LAUNCHING) & (pieces.kind != QUEUED))
    wait = wait[after]
    total = np.bincount(wait, pieces.ns[after], minlength=len(start))
    share = np.minimum(length, total) / np.maximum(total, 1)
    moved = pieces.ns[after] * share[wait]
    left = pieces.ns.copy()
    left[after] -= moved
    charged = Pieces(at=start[wait], ns=moved, phase=phase[wait], kind=np.full(len(after), HELD))
    return _joined([replace(pieces, ns=left), charged])


def _joined(parts: list[Pieces]) -> Pieces:
    return Pieces(**{name: np.concatenate([vars(part)[name] for part in parts]) for name in vars(parts[0])})
