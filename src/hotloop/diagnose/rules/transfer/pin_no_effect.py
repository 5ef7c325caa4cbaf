"""``transfer/pin-no-effect``: pin_memory=True is set, and yet the copied batches are not pinned."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop import units
from hotloop.diagnose import costs
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.transfers import copies, costliest, is_pinned
from hotloop.findings import Finding

ID = "transfer/pin-no-effect"
COSTED = True


def check(evidence: Evidence) -> Iterator[Finding]:
    """Speak where the training loader pins and the large copies come from pageable memory all the same."""
    found = copies(evidence)
    loader = evidence.steps.train_loader()
    if found is None or loader is None or not loader.settings.get("pin_memory"):
        return
    sites = [site for site in found.sites if not is_pinned(site)]
    moved = found.bytes_per_step(sites)
    if (
        not sites
        or moved < 0.5 * found.bytes_per_step(found.sites)
        or moved < evidence.limits.large_copy_bytes
    ):
        return
    cost = found.seconds(sites)
    yield Finding(
        id=ID,
        message=(
            f"pin_memory=True has no effect: {units.size(moved)} per step are copied from memory that is "
            "not pinned."
        ),
        advice=(
            "Give the batch class a pin_memory() method (or return tensors, dicts and lists, which "
            "DataLoader pins by "
            "itself), and do not make new host tensors from the batch before copying it."
        ),
        evidence=(
            f"{found.count_per_step(sites):.0f} copies per step, {units.size(moved)}, not pinned",
            "a batch of an own class without pin_memory(), or one that was changed on the host, loses its "
            "pinning",
            f"{units.duration(cost)} of each step, {units.share(found.exposed)} of the copying with the "
            "device idle",
        ),
        cost_s_per_step=cost,
        cost_ci95=costs.phase_interval(evidence.steps, cost, "transfer"),
        where=costliest(sites).place or loader.where,
        data={"bytes_per_step": moved},
    )
