"""``memory/fragmentation``: the allocator holds much more device memory than tensors fill, and had to
retry.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hotloop import units
from hotloop.diagnose.device_memory import capacity_bytes, column, notes
from hotloop.diagnose.evidence import Evidence
from hotloop.findings import Finding

ID = "memory/fragmentation"


def check(evidence: Evidence) -> Iterator[Finding]:
    """Needs retries (the allocator freed its cache to go on), or far more reserved than ever allocated near
    the limit.
    """
    found = notes(evidence)
    if len(found) < 3 or not evidence.on_accelerator:
        return
    reserved = float(np.nanmax(column(found, "device_reserved")))
    peak = float(
        np.nanmax(np.append(column(found, "device_peak"), np.nanmax(column(found, "device_allocated"))))
    )
    retries = float(np.nanmax(np.append(column(found, "alloc_retries"), 0.0)))
    capacity = capacity_bytes(evidence)
    tight = capacity is not None and reserved > 0.9 * capacity
    loose = reserved > evidence.limits.fragmentation_ratio * peak
    if not (retries > 0 or (tight and loose)) or reserved < 1.1 * peak:
        return
    yield Finding(
        id=ID,
        message=(
            f"The allocator holds {units.size(reserved)} of device memory for tensors of {units.size(peak)} "
            "at most" + (f", and emptied its cache {retries:.0f} times to go on." if retries else ".")
        ),
        advice=(
            "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, and keep shapes the same from step to "
            "step (pad or "
            "bucket)."
        ),
        evidence=(
            f"reserved {units.size(reserved)}, allocated at peak {units.size(peak)}, retries {retries:.0f}",
            *((f"the device has {units.size(capacity)}",) if capacity else ()),
        ),
        severity="medium" if retries else "low",
        remedies=("expandable-segments",),
        data={
            "reserved_bytes": reserved,
            "peak_bytes": peak,
            "retries": retries,
            "unpriced": retries > 0,
        },
    )
