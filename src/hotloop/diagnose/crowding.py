"""A machine that others use too: how much of the cores this run got.

Off the CPU is not the same as waiting: on a crowded machine work that computes is off the CPU as well. The
kernel counts how long a thread could have run while no core was free; sleeping and reading are not in it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hotloop.diagnose.evidence import Evidence


def run_ratio(evidence: Evidence, pids: Iterable[int]) -> float:
    """Of the time these processes' threads could run, the share in which they did; 1 where it is not
    known.
    """
    start, end = span_since_command(evidence)
    ran = waited = 0.0
    for pid in pids:
        columns = evidence.recording.process_system.get(pid, {})
        if "main_cpu_s" not in columns or "core_wait_s" not in columns:
            continue
        seconds = np.asarray(columns["t_s"], float)
        inside = (seconds >= start) & (seconds <= end) & np.isfinite(columns["core_wait_s"])
        if inside.sum() >= 2:
            ran += float(np.ptp(columns["main_cpu_s"][inside]))
            waited += float(np.ptp(columns["core_wait_s"][inside]))
    # Less than a tenth of a second says nothing.
    return ran / (ran + waited) if ran + waited > 0.1 else 1.0


def computing_ratio(on_cpu_ratio: float, run_ratio: float) -> float:
    """The share of time work wanted a core, from the share it was on one."""
    return min(1.0, on_cpu_ratio / max(run_ratio, 0.01))


def makers(evidence: Evidence, workers: int) -> tuple[int, ...]:
    """The processes that make batches: the workers, or the training process."""
    if workers == 0:
        return (evidence.steps.pid,)
    process = next((one for one in evidence.recording.ranks if one.pid == evidence.steps.pid), None)
    return tuple(worker.pid for worker in process.workers) if process is not None else ()


def span_since_command(evidence: Evidence) -> tuple[float, float]:
    """The training span in seconds since the command started, as the launcher's samples count."""
    steps, recording = evidence.steps, evidence.recording
    process = next((one for one in recording.ranks if one.pid == steps.pid), None)
    offset = (process.start_ns - recording.start_ns) / 1e9 if process is not None else 0.0
    return steps.span[0] + offset, steps.span[1] + offset
