"""From the columns of a trace to its numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hotloop.logs.trace import causes
from hotloop.logs.trace.causes import matching, own_phases
from hotloop.logs.trace.idle import HELD, LAUNCHED, NONE, Host, Pieces, cut, idle_pieces, walk
from hotloop.logs.trace.table import HOST, Events, Ints, Spans, Trace, clipped, union
from hotloop.phases import COLUMN
from hotloop.units import share

_STEP: Final = re.compile(r"ProfilerStep#(\d{1,18})")
_NUM_ROWS: Final = 500
_LAUNCH: Final = re.compile(r"Launch(Cooperative)?Kernel|GraphLaunch")
#: With fewer of the launched kernels recorded than this, idle is a guess. Whole traces have all but a few.
_COMPLETE: Final = 0.95


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of a table of kernels, operators or copies: how often, for how long in all, bytes moved."""

    name: str
    count: int
    seconds: float
    num_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Window:
    """The time that is looked at: the profiler's steps, or all there is where it marked none. Times in ns."""

    start: int
    end: int
    steps: tuple[tuple[int, int, int], ...]  # number, start, end

    @property
    def span_s(self) -> float:
        """Its length."""
        return (self.end - self.start) / 1e9

    @property
    def num_steps(self) -> int:
        """How many steps; a window without marks counts as one."""
        return max(1, len(self.steps))


@dataclass(frozen=True, kw_only=True)
class Device:
    """The busiest device in the window, in seconds.

    Computing, collectives alone, copies alone and idle add up to the window.
    """

    name: str  # "" where the trace does not say
    capability: int  # CUDA compute capability's first number, 0 unknown
    num_devices: int
    num_kernels: int
    compute_s: float
    matrix_s: float  # in gemm, conv and attention kernels
    compute_by_phase: npt.NDArray[np.float64]  # by column of hotloop.phases, sums to compute_s
    collective_s: float
    collective_alone_s: float
    copy_alone_s: float
    idle: Pieces
    kernels: tuple[Row, ...]
    copies: tuple[Row, ...]
    plain_float32_s: float  # of matrix_s

    @property
    def idle_s(self) -> float:
        """Idle seconds."""
        return float(self.idle.ns.sum()) / 1e9


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """Everything a trace tells. ``host``: the main thread's time in pieces; ``device`` is None on a CPU."""

    trace: Trace
    window: Window
    main: int
    device: Device | None
    host: Pieces
    operators: tuple[Row, ...]
    doubt: str = ""  # why causes cannot be told

    def lost_s(self, phase: str) -> float:
        """Seconds lost to a phase: the device idle because of it, or the main thread in it on a CPU."""
        pieces = self.device.idle if self.device else self.host
        return float(pieces.by_phase(HELD, LAUNCHED)[COLUMN[phase]])


def analyzed(trace: Trace) -> Analysis | None:
    """The numbers of a trace; None where it has no event of a host or device."""
    if not len(trace.calls) and not len(trace.device):
        return None
    host = walk(trace.calls, own_phases(trace))
    steps = {at: _STEP.match(label.name) for at, label in enumerate(trace.labels)}
    numbers = {at: int(match[1]) for at, match in steps.items() if match}
    marks = trace.calls.where(np.isin(trace.calls.label, list(numbers)))
    main = _main_thread(marks, host)
    mine = marks.where(marks.thread == main)
    rows = zip(mine.label.tolist(), mine.start.tolist(), mine.end.tolist(), strict=True)
    window = _window(trace, tuple((numbers[label], start, end) for label, start, end in rows))
    spans = Spans(start=np.array([window.start]), end=np.array([window.end]))
    calls = host.calls
    operator = np.array([label.kind == HOST and not steps[at] for at, label in enumerate(trace.labels)])
    inside = operator[calls.label] & (calls.start >= window.start) & (calls.start < window.end)
    return Analysis(
        trace=trace,
        window=window,
        main=main,
        device=_device(trace, host, main, window) if len(trace.device) else None,
        host=cut(host.view(main, main), spans),
        operators=_rows(trace, calls.where(inside), host.self_ns[inside]),
        doubt=_doubt(trace, window, marks),
    )


def _doubt(trace: Trace, window: Window, marks: Events) -> str:
    """Why the device's time cannot be told, "" where it can.

    Calls and kernels are not in the order of time in a file: one that breaks off has holes anywhere.
    """
    if trace.reading.truncated:
        return "The trace breaks off"
    calls = trace.calls
    launch = _by_label(trace, lambda name: _LAUNCH.search(name) is not None)[calls.label]
    launch &= (calls.correlation > 0) & (calls.start >= window.start) & (calls.end <= window.end)
    done = matching(calls.correlation[launch], trace.device.correlation) >= 0
    if len(trace.device) and len(done) and done.mean() < _COMPLETE:
        return f"The kernels of {share(1 - float(done.mean()))} of the launches are not in the trace"
    processes = {trace.threads[thread][0] for thread in np.unique(marks.thread).tolist()}
    return "These are the traces of several processes in one file" if len(processes) > 1 else ""


def _main_thread(marks: Events, host: Host) -> int:
    """The thread that marks the steps; without marks the one with the most recorded time."""
    if len(marks):
        return int(np.bincount(marks.thread).argmax())
    if not len(host.calls):
        return -1
    return int(np.bincount(host.calls.thread, host.self_ns.astype(np.float64)).argmax())


def _window(trace: Trace, steps: tuple[tuple[int, int, int], ...]) -> Window:
    """First to last step, as far as all events are there."""
    if steps:
        start, end = min(step[1] for step in steps), max(step[2] for step in steps)
    else:
        both = [events for events in (trace.calls, trace.device) if len(events)]
        start = min(int(events.start.min()) for events in both)
        end = max(int(events.end.max()) for events in both)
    if trace.reading.truncated and len(trace.calls):
        end = min(end, int(trace.calls.start.max()))
    whole = tuple(step for step in steps if step[2] <= end)
    if whole:
        end = whole[-1][2]
    return Window(start=start, end=max(end, start + 1), steps=whole)


def _device(trace: Trace, host: Host, main: int, window: Window) -> Device | None:
    process = np.array([_number(thread[0]) for thread in trace.threads], dtype=np.int64)
    owner = process[trace.device.thread]
    devices, counts = np.unique(owner, return_counts=True)
    chosen = int(devices[counts.argmax()])
    mine = trace.device.where(owner == chosen)
    events = clipped(mine, window.start, window.end)
    family = _by_label(trace, causes.family)[events.label]
    copying = np.isin(family, ("memcpy", "memset"))
    collective = family == "collective"
    computing = union(events.where(~(copying | collective)))
    working = union(events.where(~copying))
    busy = union(events)
    duration = events.end - events.start
    matrix = np.isin(family, causes.MATRIX)
    plain = _by_label(trace, causes.is_plain_float32)[events.label]
    known = trace.reading.header.get("deviceProperties")
    all_known = [one for one in known if isinstance(one, dict)] if isinstance(known, list) else []
    properties = next((one for one in all_known if one.get("id") == chosen), {})
    return Device(
        name=str(properties.get("name", "")),
        capability=max(0, _number(str(properties.get("computeMajor")))),
        num_devices=len(devices),
        num_kernels=int((~copying).sum()),
        compute_s=computing.total_ns / 1e9,
        matrix_s=int(duration[matrix].sum()) / 1e9,
        compute_by_phase=_phases_of(host, events.where(~(copying | collective)), computing.total_ns / 1e9),
        collective_s=union(events.where(collective)).total_ns / 1e9,
        collective_alone_s=(working.total_ns - computing.total_ns) / 1e9,
        copy_alone_s=(busy.total_ns - working.total_ns) / 1e9,
        idle=idle_pieces(host, main, mine, busy.gaps(window.start, window.end)),
        kernels=_rows(trace, events.where(~copying), duration[~copying]),
        copies=_rows(trace, events.where(copying), duration[copying]),
        plain_float32_s=int(duration[matrix & plain].sum()) / 1e9,
    )


def _phases_of(host: Host, work: Events, seconds: float) -> npt.NDArray[np.float64]:
    """Device seconds by the phase in which the host launched them; streams that overlap share the time."""
    call = matching(work.correlation, host.calls.correlation)
    phase = np.full(len(work), COLUMN["other"])
    phase[call >= 0] = host.phase[call[call >= 0]]
    phase[phase == NONE] = COLUMN["other"]
    by_phase = np.bincount(phase, work.end - work.start, minlength=len(COLUMN)).astype(np.float64)
    return np.asarray(by_phase * (seconds / max(1.0, float(by_phase.sum()))))


def _by_label(trace: Trace, classify: Callable[[str], str | bool]) -> npt.NDArray[Any]:
    """What a function of the name gives for every label."""
    return np.array([classify(label.name) for label in trace.labels])


def _rows(trace: Trace, events: Events, ns: Ints) -> tuple[Row, ...]:
    """Counts and sums of events by name, the longest in all first."""
    label, position = np.unique(events.label, return_inverse=True)
    count = np.bincount(position, minlength=len(label))
    took = np.bincount(position, ns, minlength=len(label)) / 1e9
    moved = np.bincount(position, np.maximum(events.num_bytes, 0), minlength=len(label))
    return tuple(
        Row(
            name=trace.name(label[at]),
            count=int(count[at]),
            seconds=float(took[at]),
            num_bytes=int(moved[at]),
        )
        for at in np.argsort(-took)[:_NUM_ROWS].tolist()
    )


def _number(text: str) -> int:
    return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else -1
