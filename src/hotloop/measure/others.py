"""What other programs did on the machine while a process trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hotloop.measure.steps import Steps
from hotloop.record.recording import Process, Recording
from hotloop.record.totals import at_times, total

Floats = npt.NDArray[Any]

#: Less sampled time that a thread could run says nothing of the share in which it did.
CORE_TIME_LEAST_S: Final = 0.1
#: Fewer samples of the machine say nothing.
_LEAST_SAMPLES: Final = 3


def core_time(
    columns: Mapping[str, Floats], start: float = -np.inf, end: float = np.inf
) -> tuple[float, float]:
    """Seconds between two times in which a process's first thread ran, and in which it could have but no core
    was free; zeros where it was not sampled.
    """
    if "main_cpu_s" not in columns or "core_wait_s" not in columns:
        return 0.0, 0.0
    seconds = np.asarray(columns["t_s"], float)
    inside = (seconds >= start) & (seconds <= end) & np.isfinite(columns["core_wait_s"])
    if inside.sum() < 2:
        return 0.0, 0.0
    return float(np.ptp(columns["main_cpu_s"][inside])), float(np.ptp(columns["core_wait_s"][inside]))


def core_time_got(recording: Recording) -> dict[int, float]:
    """By process: of the time that its first thread could run, the share in which it did, where known."""
    got = {}
    for pid, columns in recording.process_system.items():
        ran, waited = core_time(columns)
        if ran + waited > CORE_TIME_LEAST_S:
            got[pid] = ran / (ran + waited)
    return got


def span_s(recording: Recording, process: Process, steps: Steps) -> tuple[float, float]:
    """The training span of a process in seconds since the command started."""
    offset = (process.start_ns - recording.start_ns) / 1e9
    return steps.span[0] + offset, steps.span[1] + offset


def others_cores(recording: Recording, process: Process, steps: Steps) -> float | None:
    """Cores that others than this command kept busy while it trained; None with too few samples."""
    at, used = recording.system.get("t_s"), recording.system.get("cpu_ratio")
    if at is None or used is None:
        return None
    own = at_times(total(recording.process_system.values(), "cpu_ratio", whole=False), at)
    cores = float(recording.machine.get("cpu_count") or 1)
    start, end = span_s(recording, process, steps)
    inside = (at >= start) & (at <= end) & np.isfinite(used)
    if inside.sum() < _LEAST_SAMPLES:
        return None
    return max(0.0, float((used[inside] * cores - own[inside]).mean()))


def others_beside(recording: Recording, process: Process, steps: Steps) -> float | None:
    """Of these the cores that this run would surely have had: not those beyond its affinity and quota. None
    where workers lived too shortly to be sampled: what they used would count as others'.
    """
    taken = others_cores(recording, process, steps)
    workers = {worker.pid for rank in recording.ranks for worker in rank.workers}
    if taken is None or not workers <= set(recording.process_system):
        return None
    there = float(recording.machine.get("cpu_count") or 1)
    elsewhere = max(0.0, there - float(recording.machine.get("cores") or there))
    return max(0.0, taken - elsewhere)
