"""What other programs did on the machine while a process trained.

Off the CPU is not the same as waiting: on a crowded machine work that computes is off the CPU as well. The
kernel counts how long a thread could have run while no core was free; sleeping and reading are not in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hotloop.measure.steps import Steps
from hotloop.record.recording import Process, Recording
from hotloop.record.samples import at_times, total

Floats = npt.NDArray[Any]

#: Less sampled time that a thread could run says nothing of the share in which it did.
_CORE_TIME_LEAST_S: Final = 0.1
#: Fewer samples of the machine say nothing.
_LEAST_SAMPLES: Final = 3


def core_time_got(
    sampled: Iterable[Mapping[str, Floats]], start: float = -np.inf, end: float = np.inf
) -> float:
    """Of the time between two times in which the first threads of sampled processes could run, the share in
    which they did; 1 where that was not sampled.
    """
    ran = waited = 0.0
    for columns in sampled:
        if "main_cpu_s" in columns and "core_wait_s" in columns:
            seconds = np.asarray(columns["t_s"], float)
            inside = (seconds >= start) & (seconds <= end) & np.isfinite(columns["core_wait_s"])
            if inside.any():
                ran += float(np.ptp(columns["main_cpu_s"][inside]))
                waited += float(np.ptp(columns["core_wait_s"][inside]))
    return ran / (ran + waited) if ran + waited > _CORE_TIME_LEAST_S else 1.0


def span_s(recording: Recording, process: Process, steps: Steps) -> tuple[float, float]:
    """The training span of a process in seconds since the command started."""
    offset = (process.start_ns - recording.start_ns) / 1e9
    return steps.span[0] + offset, steps.span[1] + offset


def others_cores(recording: Recording, start: float, end: float) -> float | None:
    """Cores that others than this command kept busy between two times; None with too few samples."""
    at, used = recording.system.get("t_s"), recording.system.get("cpu_ratio")
    if at is None or used is None:
        return None
    own = at_times(total(recording.process_system.values(), "cpu_ratio", whole=False), at)
    cores = float(recording.machine.get("cpu_count") or 1)
    inside = (at >= start) & (at <= end) & np.isfinite(used)
    if inside.sum() < _LEAST_SAMPLES:
        return None
    return max(0.0, float((used[inside] * cores - own[inside]).mean()))


def others_beside(recording: Recording, start: float, end: float) -> float | None:
    """Of these the cores that this run would surely have had: not those beyond its affinity and quota. None
    where workers lived too shortly to be sampled: what they used would count as others'.
    """
    taken = others_cores(recording, start, end)
    workers = {worker.pid for rank in recording.ranks for worker in rank.workers}
    if taken is None or not workers <= set(recording.process_system):
        return None
    there = float(recording.machine.get("cpu_count") or 1)
    elsewhere = max(0.0, there - float(recording.machine.get("cores") or there))
    return max(0.0, taken - elsewhere)
