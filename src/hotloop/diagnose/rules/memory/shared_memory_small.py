"""``memory/shared-memory-small``: /dev/shm is small against the batches that may lie in it."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop import units
from hotloop.diagnose.evidence import Evidence
from hotloop.findings import Finding, Severity

ID = "memory/shared-memory-small"


def check(evidence: Evidence) -> Iterator[Finding]:
    """Add up the batches of every loader with workers that may wait in shared memory at once."""
    size = float(evidence.machine.get("shm_bytes") or 0.0)
    if size <= 0:
        return
    needs = {}
    for loader in evidence.steps.loaders:
        workers = int(loader.settings.get("num_workers") or 0)
        if workers and loader.batch_bytes > 0 and loader.role != "unused":
            ahead = workers * int(loader.settings.get("prefetch_factor") or 2)
            needs[loader.id] = (ahead + 1) * loader.batch_bytes
    need = sum(needs.values())
    if need < evidence.limits.shm_ratio * size:
        return
    severity: Severity = "high" if need > 0.9 * size else "medium"
    train = evidence.steps.train_loader()
    yield Finding(
        id=ID,
        message=(
            f"Up to {units.size(need)} of batches wait in /dev/shm, which holds {units.size(size)}: a full "
            "one kills "
            "the workers with a bus error."
        ),
        advice=(
            "Give the container more shared memory (docker run --shm-size, --ipc=host), or lower "
            "prefetch_factor, "
            "num_workers or the size of a sample."
        ),
        evidence=(
            f"num_workers × prefetch_factor + 1 batches of each loader: {units.size(need)}",
            f"/dev/shm holds {units.size(size)}",
        ),
        severity=severity,
        where=train.where if train is not None else None,
        remedies=("prefetch-factor",),
        data={"need_bytes": need, "shm_bytes": size},
    )
