"""``transfer/blocking``: pinned batches are copied with non_blocking=False, so the host waits for each
copy.
"""

from __future__ import annotations

from collections.abc import Iterator

from hotloop import units
from hotloop.diagnose import costs
from hotloop.diagnose.discovery import ARGUMENT
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.transfers import copies, costliest, is_non_blocking, is_pinned
from hotloop.findings import Finding

ID = "transfer/blocking"
EFFORT = ARGUMENT
COSTED = True


def check(evidence: Evidence) -> Iterator[Finding]:
    """Price copies from pinned memory that the host waits for."""
    found = copies(evidence)
    if found is None:
        return
    sites = [site for site in found.sites if is_pinned(site) and not is_non_blocking(site)]
    if not sites or found.bytes_per_step(sites) < evidence.limits.large_copy_bytes:
        return
    cost = found.seconds(sites)
    top = costliest(sites)
    yield Finding(
        id=ID,
        message=(
            f"The batch is pinned but copied with non_blocking=False: the host waits {units.duration(cost)} "
            "in each "
            "step while the device could already work."
        ),
        advice="Pass non_blocking=True where the batch is copied: x.to(device, non_blocking=True).",
        evidence=(
            f"{found.count_per_step(sites):.0f} copies per step, {units.size(found.bytes_per_step(sites))}, "
            "pinned, "
            "blocking",
            f"{units.share(found.exposed)} of the copying with the device idle",
        ),
        cost_s_per_step=cost,
        cost_ci95=costs.phase_interval(evidence.steps, cost, "transfer"),
        where=top.place,
        remedies=("non-blocking",),
    )
