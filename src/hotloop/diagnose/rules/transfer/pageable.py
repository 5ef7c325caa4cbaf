"""``transfer/pageable``: batches are copied to the device from ordinary (pageable) memory."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop import units
from hotloop.diagnose import costs
from hotloop.diagnose.discovery import ARGUMENT
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.transfers import copies, costliest, is_pinned
from hotloop.findings import Finding

ID = "transfer/pageable"
EFFORT = ARGUMENT
COSTED = True


def check(evidence: Evidence) -> Iterator[Finding]:
    """Price large copies from memory that is not pinned, where nothing asked for pinning."""
    found = copies(evidence)
    loader = evidence.steps.train_loader()
    if found is None or (loader is not None and loader.settings.get("pin_memory")):
        return
    sites = [site for site in found.sites if not is_pinned(site)]
    moved = found.bytes_per_step(sites)
    if not sites or moved < evidence.limits.large_copy_bytes:
        return
    cost = found.seconds(sites)
    top = costliest(sites)
    yield Finding(
        id=ID,
        message=(
            f"{units.size(moved)} per step are copied to the device from pageable memory, "
            f"{units.duration(cost)} of each step; the host waits meanwhile."
        ),
        advice="Set pin_memory=True on the DataLoader and copy with .to(device, non_blocking=True).",
        evidence=(
            f"{found.count_per_step(sites):.0f} copies per step, {units.size(moved)}, not pinned",
            f"{units.duration(sum(site.seconds for site in sites))} of host time in copies over the run, "
            f"{units.share(found.exposed)} of it with the device idle",
        ),
        cost_s_per_step=cost,
        cost_ci95=costs.phase_interval(evidence.steps, cost, "transfer"),
        where=top.place,
        remedies=("pin-memory", "non-blocking"),
        data={"bytes_per_step": moved},
    )
