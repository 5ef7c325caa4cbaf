"""Memory that is nearly used up: the run's, the device's in pieces, and /dev/shm."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hotloop.diagnose.causes import cause
from hotloop.diagnose.device_state import smallest_device_bytes
from hotloop.diagnose.discovery import rule
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.memory_use import device_notes, limit_of, note_column, peak_of
from hotloop.findings import Finding
from hotloop.measure.steps import LoaderUse
from hotloop.units import share, size


@rule("memory/near-limit", short_runs=True)
def near_limit(evidence: Evidence) -> Iterator[Finding]:
    """Compare the peak of the run's processes with the memory of the machine or of its cgroup."""
    limit, used, limits = limit_of(evidence.machine), peak_of(evidence.recording), evidence.limits
    if limit is None or used <= 0:
        return
    cgroup = float(evidence.machine.get("memory_limit_bytes") or 0.0) == limit
    full = used / limit if cgroup else _machine_full(evidence, limit)
    # On a machine that others fill the run is not what to change.
    if full < limits.near_limit_ratio or used < 0.5 * limit:
        return
    yield cause(
        evidence,
        "memory/near-limit",
        message=(
            f"The run used {size(used)} of memory at its peak; {share(full)} of "
            f"{'its limit' if cgroup else 'the machine'} ({size(limit)}) was taken."
        ),
        numbers=[
            f"peak of all processes of the run {size(used)}",
            f"{'cgroup limit' if cgroup else 'memory of the machine'} {size(limit)}",
        ],
        severity="high" if full >= limits.at_limit_ratio else "medium",
        data={"used_bytes": used, "limit_bytes": limit},
    )


def _machine_full(evidence: Evidence, limit: float) -> float:
    available = evidence.recording.system.get("memory_available_bytes")
    known = available[np.isfinite(available)] if available is not None else np.zeros(0)
    return 1.0 - float(known.min()) / limit if len(known) else 0.0


@rule("memory/fragmentation", short_runs=True)
def fragmentation(evidence: Evidence) -> Iterator[Finding]:
    """Needs retries (the allocator freed its cache to go on), or far more reserved than ever allocated near
    the limit.
    """
    found = device_notes(evidence)
    if len(found) < 3 or not evidence.on_accelerator:
        return
    reserved = float(np.nanmax(note_column(found, "device_reserved")))
    allocated = np.append(note_column(found, "device_peak"), note_column(found, "device_allocated"))
    peak, retries = (
        float(np.nanmax(allocated)),
        float(np.nanmax(np.append(note_column(found, "alloc_retries"), 0))),
    )
    capacity = smallest_device_bytes(evidence.recording)
    tight = capacity is not None and reserved > 0.9 * capacity
    loose = reserved > evidence.limits.fragmentation_ratio * peak
    if not (retries > 0 or (tight and loose)) or reserved < 1.1 * peak:
        return
    emptied = f", and emptied its cache {retries:.0f} times to go on" if retries else ""
    yield cause(
        evidence,
        "memory/fragmentation",
        message=f"The allocator holds {size(reserved)} of device memory for tensors of {size(peak)} at "
        f"most{emptied}.",
        numbers=[
            f"reserved {size(reserved)}, allocated at peak {size(peak)}, retries {retries:.0f}",
            *([f"the device has {size(capacity)}"] if capacity else []),
        ],
        severity="medium" if retries else "low",
        data={"reserved_bytes": reserved, "peak_bytes": peak, "retries": retries, "unpriced": retries > 0},
    )


@rule("memory/shared-memory-small", short_runs=True)
def shared_memory_small(evidence: Evidence) -> Iterator[Finding]:
    """Add up the batches of every loader with workers that may wait in shared memory at once."""
    held = float(evidence.machine.get("shm_bytes") or 0.0)
    used = (loader for loader in evidence.steps.loaders if loader.role != "unused")
    need = sum(waiting(loader) * loader.batch_bytes for loader in used)
    if held <= 0 or need < evidence.limits.shm_ratio * held:
        return
    train = evidence.steps.train_loader()
    yield cause(
        evidence,
        "memory/shared-memory-small",
        message=(
            f"Up to {size(need)} of batches wait in /dev/shm, which holds {size(held)}: a full one kills the "
            "workers with a bus error."
        ),
        numbers=[
            f"num_workers × prefetch_factor + 1 batches of each loader: {size(need)}",
            f"/dev/shm holds {size(held)}",
        ],
        severity="high" if need > 0.9 * held else "medium",
        where=train.where if train is not None else None,
        data={"need_bytes": need, "shm_bytes": held},
    )


def waiting(loader: LoaderUse) -> int:
    """Batches of a loader that may lie in shared memory at once."""
    workers = int(loader.settings.get("num_workers") or 0)
    return workers * int(loader.settings.get("prefetch_factor") or 2) + 1 if workers else 0
