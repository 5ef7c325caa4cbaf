"""A machine that others use too: how much of the cores this run got.

Off the CPU is not the same as waiting: on a crowded machine work that computes is off the CPU as well. The
kernel counts how long a thread could have run while no core was free; sleeping and reading are not in it.
"""

from __future__ import annotations

from collections.abc import Iterable

from hotloop.diagnose.evidence import Evidence
from hotloop.measure.others import CORE_TIME_LEAST_S, core_time, others_beside


def core_time_got(evidence: Evidence, pids: Iterable[int], span: tuple[float, float] | None = None) -> float:
    """Of the time these processes could run over a span (of training), the share in which they did; 1 where
    that was not sampled. Every ``on_cpu_ratio`` in Steps was divided by that of its own process.
    """
    ran = waited = 0.0
    for pid in pids:
        its = core_time(evidence.recording.process_system.get(pid, {}), *(span or evidence.span))
        ran, waited = ran + its[0], waited + its[1]
    return ran / (ran + waited) if ran + waited > CORE_TIME_LEAST_S else 1.0


def slowed_by_others(evidence: Evidence) -> float:
    """The core time got in the last quarter of the span over that in the first, at most 1."""
    start, end = evidence.span
    parts = (start, start + (end - start) / 4), (end - (end - start) / 4, end)
    first, last = (core_time_got(evidence, (evidence.steps.pid,), part) for part in parts)
    return min(1.0, last / max(first, 1e-9))


def others_took(evidence: Evidence) -> float | None:
    """Cores of this run's that other programs kept busy over the training span; None when not known."""
    process = evidence.process
    return None if process is None else others_beside(evidence.recording, process, evidence.steps)


def is_crowded(evidence: Evidence) -> bool:
    """Whether other programs took a part of this run's cores that counts."""
    taken = others_took(evidence)
    return taken is not None and taken >= evidence.limits.others_ratio * evidence.cores
