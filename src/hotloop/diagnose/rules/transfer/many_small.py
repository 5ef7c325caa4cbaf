"""``transfer/many-small``: many small tensors are copied to the device one by one."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop import units
from hotloop.diagnose import costs
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.transfers import copies, costliest
from hotloop.findings import Finding

ID = "transfer/many-small"
COSTED = True


def check(evidence: Evidence) -> Iterator[Finding]:
    """Price copies that are small and many: each costs its call, not its bytes."""
    found = copies(evidence)
    limits = evidence.limits
    if found is None:
        return
    sites = [
        site for site in found.sites if site.count and site.num_bytes / site.count < limits.small_copy_bytes
    ]
    count = found.count_per_step(sites)
    if count < limits.many_copies:
        return
    # One copy of everything would remain.
    cost = found.seconds(sites) * (1.0 - 1.0 / count)
    top = costliest(sites)
    yield Finding(
        id=ID,
        message=(
            f"{count:.0f} small tensors ({units.size(found.bytes_per_step(sites) / count)} on average) are "
            "copied to "
            f"the device in every step, one by one: {units.duration(cost)}."
        ),
        advice=(
            "Stack them on the host and copy once, or let collate_fn return one tensor; make constants on "
            "the device "
            "once, before the loop."
        ),
        evidence=(
            f"{count:.0f} copies per step below {units.size(limits.small_copy_bytes)}",
            f"{units.duration(sum(s.seconds for s in sites) / max(1, sum(s.count for s in sites)))} per copy",
        ),
        cost_s_per_step=cost,
        cost_ci95=costs.phase_interval(evidence.steps, cost, "transfer"),
        where=top.place,
        data={"copies_per_step": count},
    )
