"""``memory/near-limit``: the run's memory came close to what it may use."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hotloop import units
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.memory_use import limit_bytes, run_bytes
from hotloop.findings import Finding, Severity

ID = "memory/near-limit"


def check(evidence: Evidence) -> Iterator[Finding]:
    """Compare the peak of the run's processes with the memory of the machine or of its cgroup."""
    limit = limit_bytes(evidence)
    used = run_bytes(evidence)
    limits = evidence.limits
    if limit is None or used <= 0:
        return
    cgroup = float(evidence.machine.get("memory_limit_bytes") or 0.0) == limit
    full = used / limit if cgroup else _machine_full(evidence, limit)
    # On a machine that others fill the run is not what to change.
    if full < limits.near_limit_ratio or used < 0.5 * limit:
        return
    severity: Severity = "high" if full >= limits.at_limit_ratio else "medium"
    yield Finding(
        id=ID,
        message=(
            f"The run used {units.size(used)} of memory at its peak; {units.share(full)} of "
            f"{'its limit' if cgroup else 'the machine'} ({units.size(limit)}) was taken."
        ),
        advice=(
            "Lower num_workers or prefetch_factor, keep less of the dataset in memory, or raise the limit; "
            "beyond it "
            "the kernel kills a worker or the training process."
        ),
        evidence=(
            f"peak of all processes of the run {units.size(used)}",
            f"{'cgroup limit' if cgroup else 'memory of the machine'} {units.size(limit)}",
        ),
        severity=severity,
        data={"used_bytes": used, "limit_bytes": limit},
    )


def _machine_full(evidence: Evidence, limit: float) -> float:
    available = evidence.recording.system.get("memory_available_bytes")
    known = available[np.isfinite(available)] if available is not None else np.zeros(0)
    return 1.0 - float(known.min()) / limit if len(known) else 0.0
