"""Pages that are read from storage again and again, or taken from the kernel anew in each step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hotloop import units
from hotloop.diagnose.costs import feed_of
from hotloop.diagnose.evidence import Evidence, rule, spot
from hotloop.diagnose.making import of_input, waits
from hotloop.diagnose.rules.input.slow_storage import waiting_reads
from hotloop.feed.memory import PAGE_BYTES, heap_chosen
from hotloop.findings import Finding
from hotloop.units import share, size

_PAGE = 4096.0


@rule("memory/page-cache-thrash", costed=True)
def page_cache_thrash(evidence: Evidence) -> Iterator[Finding]:
    """Speak where makers wait for reads, pages are read again soon after they were evicted, and epochs
    repeat.
    """
    feed = feed_of(evidence)
    if feed is None or feed.loader.num_iterators < 2:
        return
    part, limits = waiting_reads(feed, evidence), evidence.limits
    _, refaults = evidence.sampled(None, "refaults_per_s")
    again = float(refaults.mean()) * _PAGE if len(refaults) >= 4 else 0.0
    read = feed.loader.worker_stats.get("read_bytes", 0.0) / max(1e-9, evidence.steps.span_s)
    if part is None or read <= 0 or again < max(limits.refault_ratio * read, limits.refault_bytes_per_s):
        return
    waiting = part.share * (1.0 - part.on_cpu_ratio)
    yield of_input(
        evidence,
        saved_s=feed.saved_by_make(waiting),
        message=(
            f"Every epoch reads the dataset from storage again ({size(read)}/s): the page cache loses it "
            "before the next epoch."
        ),
        numbers=[
            waits(feed),
            f"{size(again)}/s are read again soon after they were evicted",
            f"read lines wait {share(waiting)} of making a batch, most at {spot(part.place)}",
        ],
        where=part.place,
        data={"refault_bytes_per_s": again, "read_bytes_per_s": read},
    )


@rule("memory/page-faults")
def page_faults(evidence: Evidence) -> Iterator[Finding]:
    """Many pages in each step, in a process that does not grow by them. A launch says what it would give: at
    least what so many pages ever took, where the kernel worked as long for the process.
    """
    steps, limits = evidence.steps, evidence.limits
    faults, grown, kernel_s = _faults(evidence)
    least_s = faults * limits.page_fault_s
    if least_s < limits.page_faults_ratio * steps.step_s or grown > 0.5 * faults:
        return
    if heap_chosen({str(name): str(value) for name, value in (steps.facts.get("env") or {}).items()}):
        return
    taken = f"{units.size(faults * PAGE_BYTES)} of memory from the kernel"
    cost = min(least_s, kernel_s) / evidence.threads  # which take their pages side by side
    cost *= not evidence.on_accelerator  # which hides it, nobody knows how much
    known = "at_least" if cost else "unpriced"
    least = f": at least {units.share(cost / steps.step_s)} of its time" if cost else ""
    yield Finding(
        id="memory/page-faults",
        message=f"Every step takes {taken}, page by page, and gives it back{least}.",
        advice=(
            "Let the process keep what it frees: keep-freed-memory, or an allocator that does "
            "(jemalloc, tcmalloc). hotloop tune measures it."
        ),
        evidence=(
            f"{faults:,.0f} page faults per step in the training process",
            f"at {units.duration(limits.page_fault_s)} each, less than was ever measured: "
            f"{units.share(least_s / steps.step_s)} of the step",
            *([f"the kernel worked {units.duration(kernel_s)} a step for the process"] if kernel_s else []),
        ),
        cost_s_per_step=cost,
        severity="info",
        remedies=("keep-freed-memory",),
        data={"faults_per_step": faults, "severity_fixed": True, known: True},
    )


def _faults(evidence: Evidence) -> tuple[float, float, float]:
    """Pages that the training process was handed out per step, by how many it grew, and for how many seconds
    the kernel worked for it; zeros if unknown.
    """
    pid = evidence.steps.pid
    seconds, faults, resident = evidence.sampled(pid, "minor_faults", "rss_bytes")
    if len(seconds) < 2:
        return 0.0, 0.0, 0.0
    num_steps = float(np.ptp(seconds)) / evidence.steps.step_s
    grown = float(resident[-1] - resident[0]) / PAGE_BYTES
    _, kernel = evidence.sampled(pid, "system_s")
    worked = float(np.ptp(kernel)) if len(kernel) == len(seconds) else 0.0
    return float(np.ptp(faults)) / num_steps, grown / num_steps, worked / num_steps
