"""``memory/page-faults``: the step takes its memory from the kernel anew, page by page."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hotloop import units
from hotloop.diagnose.costs import enough
from hotloop.diagnose.crowding import span_since_command
from hotloop.diagnose.evidence import Evidence
from hotloop.feed.memory import PAGE_BYTES, heap_chosen
from hotloop.findings import Finding

ID = "memory/page-faults"


def check(evidence: Evidence) -> Iterator[Finding]:
    """Many pages in each step, in a process that does not grow by them. A launch says what it would give."""
    steps, limits = evidence.steps, evidence.limits
    faults, grown = _faults(evidence)
    least_s = faults * limits.page_fault_s
    if not enough(evidence) or least_s < limits.page_faults_ratio * steps.step_s or grown > 0.5 * faults:
        return
    if heap_chosen({str(name): str(value) for name, value in (steps.facts.get("env") or {}).items()}):
        return
    taken = units.size(faults * PAGE_BYTES)
    yield Finding(
        id=ID,
        message=f"Every step takes {taken} of memory from the kernel, page by page, and gives it back.",
        advice=(
            "Let the process keep what it frees: keep-freed-memory, or an allocator that does "
            "(jemalloc, tcmalloc). hotloop tune measures it."
        ),
        evidence=(
            f"{faults:,.0f} page faults per step in the training process",
            f"at {units.duration(limits.page_fault_s)} each, less than was ever measured: "
            f"{units.share(least_s / steps.step_s)} of the step",
        ),
        severity="info",
        remedies=("keep-freed-memory",),
        data={"faults_per_step": faults, "unpriced": True},
    )


def _faults(evidence: Evidence) -> tuple[float, float]:
    """Pages that the training process was handed out per step, and by how many it grew; zeros if unknown."""
    columns = evidence.recording.process_system.get(evidence.steps.pid, {})
    if not {"t_s", "minor_faults", "rss_bytes"} <= set(columns):
        return 0.0, 0.0
    start, end = span_since_command(evidence)
    seconds, faults = np.asarray(columns["t_s"], float), np.asarray(columns["minor_faults"], float)
    inside = (seconds >= start) & (seconds <= end) & np.isfinite(faults)
    if inside.sum() < 2:
        return 0.0, 0.0
    num_steps = float(np.ptp(seconds[inside])) / evidence.steps.step_s
    resident = np.asarray(columns["rss_bytes"], float)[inside]
    grown = float(resident[-1] - resident[0]) / PAGE_BYTES
    return float(np.ptp(faults[inside])) / num_steps, grown / num_steps
