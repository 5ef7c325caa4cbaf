"""``memory/worker-copies``: every worker grows a copy of the dataset of its own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hotloop import units
from hotloop.diagnose import costs
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.memory_use import in_span, limit_bytes, worker_pids
from hotloop.diagnose.worker_memory import worker_memory
from hotloop.findings import Finding, Severity

ID = "memory/worker-copies"


def check(evidence: Evidence) -> Iterator[Finding]:
    """Speak where two workers or more each grow their private memory by a large amount over their life."""
    feed = costs.feed(evidence)
    if feed is None or feed.workers < 2:
        return
    grown = worker_growth(evidence)
    limits = evidence.limits
    typical = float(np.median(grown)) if grown else 0.0
    if len(grown) < 2 or typical < limits.worker_growth_bytes:
        return
    total = typical * feed.workers
    limit = limit_bytes(evidence)
    share = total / limit if limit else 0.0
    severity: Severity = "medium" if share > 0.25 else "low" if share > 0.05 else "info"
    yield Finding(
        id=ID,
        message=(
            f"Each of {feed.workers} workers grows by {units.size(typical)} of memory of its own while it "
            "reads the "
            f"dataset: {units.size(total)} together."
        ),
        advice=(
            "Keep the dataset's index in arrays (numpy, torch) instead of lists of Python objects: reading "
            "an object "
            "writes its reference count, which copies the page in every worker."
        ),
        evidence=(
            "private memory grown per worker: " + ", ".join(units.size(value) for value in grown[:4]),
            *((f"{units.share(share)} of the {units.size(limit)} this run may use",) if limit else ()),
        ),
        severity=severity,
        where=feed.loader.where,
        data={"bytes_per_worker": typical, "workers": feed.workers},
    )


def worker_growth(evidence: Evidence) -> list[float]:
    """Bytes each worker's private memory grew, its start (imports, the first batches) left out.

    Where private pages were counted, what it no longer shares with the process it was forked from counts too:
    resident memory does not show that.
    """
    copied = {one.pid: one.copied_bytes for one in worker_memory(evidence.recording)}
    grown = []
    for pid in worker_pids(evidence):
        _, values = in_span(evidence, pid)
        known = values[np.isfinite(values)]
        known = known[max(1, len(known) // 5) :]
        if len(known) >= 4:
            grown.append(max(float(known[-1] - known[0]), copied.get(pid, 0.0)))
    return grown
