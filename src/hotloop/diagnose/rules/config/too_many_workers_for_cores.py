"""More loader workers than cores, and they hold each other up."""

from __future__ import annotations

from collections.abc import Iterable

from hotloop.diagnose.causes import at, cause
from hotloop.diagnose.costs import enough, offers
from hotloop.diagnose.evidence import Evidence
from hotloop.findings import Finding
from hotloop.units import share

ID = "config/too-many-workers-for-cores"
EFFORT = 0

#: Workers on a CPU for less than this of the time they make batches, all of them busy, wait for a core.
_ON_CPU_RATIO = 0.8
_BUSY_RATIO = 0.8


def check(evidence: Evidence) -> Iterable[Finding]:
    """Workers of all ranks against cores, where busy workers are kept off the CPU and do not read files."""
    loader = evidence.steps.train_loader()
    if loader is None or not enough(evidence) or "cores" not in evidence.machine:
        return
    workers = int(loader.settings.get("num_workers") or 0)
    total = workers * max(1, len(evidence.ranks))
    on_cpu, busy = loader.make_on_cpu_ratio, loader.busy_ratio
    if total <= evidence.cores or on_cpu is None or busy is None:
        return
    cores_used = total * busy * on_cpu
    # Off the CPU for want of a core, not because the work sleeps or reads: the cores are all taken.
    if on_cpu >= _ON_CPU_RATIO or busy < _BUSY_RATIO or cores_used < 0.8 * evidence.cores:
        return
    yield cause(
        evidence,
        ID,
        message=f"{total} loader workers share {evidence.cores:g} cores{at(loader.where)}: they take turns.",
        advice=f"Use at most {max(1, int(evidence.cores) - 1)} workers here; fewer make the same batches.",
        numbers=[
            f"workers are busy {share(busy)} of the time and on a CPU for {share(on_cpu)} of that",
            f"together they use {cores_used:.1f} of {evidence.cores:g} cores",
        ],
        where=loader.where,
        remedies=offers(loader, "num-workers"),
        data={"workers": total, "cores": evidence.cores},
    )
