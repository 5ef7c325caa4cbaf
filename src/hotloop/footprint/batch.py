"""The largest batch that fits, from two runs of one command at two batch sizes. None where no line shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from hotloop import units
from hotloop.diagnose.memory_use import limit_of
from hotloop.footprint.training import device_memory, host_memory
from hotloop.record.recording import Recording

#: Of the memory there is, this much is filled; the rest is for what varies from batch to batch.
_FILLED_RATIO: Final = 0.9
#: Two batch sizes must be this far apart, and their peaks this much, for a line through them.
_APART_RATIO: Final = 1.25
_GROWN_RATIO: Final = 0.02
_GROWN_BYTES: Final = 32 * 2**20


#: A run, and its account of memory.
Accounted = tuple[Recording, Mapping[str, Any]]


def compare(*runs: Accounted) -> dict[str, Any] | None:
    """Samples of one rank's batch that fit, from two runs."""
    if not all(recording.ranks for recording, _ in runs):
        return None
    hosts, devices = (
        [held for recording, _ in runs if (held := of(recording, recording.ranks[0])) is not None]
        for of in (lambda *run: host_memory(*run), device_memory)
    )
    if len(devices) == 2 and devices[1].capacity_bytes:
        kind, limit, known = "device", devices[1].capacity_bytes, devices
        spare = max((one.reserved_bytes or one.peak_bytes) - one.peak_bytes for one in known)
        outside = max(one.outside_bytes for one in known) + spare
    else:
        last = runs[1][0]
        kind, limit, known = "host", limit_of(last.machine) or 0.0, hosts
        if not limit or len(known) < 2:
            return None
        peaks = (float(memory.get("run_peak_bytes") or 0.0) for _, memory in runs)
        beside = max(peak - one.peak_bytes for peak, one in zip(peaks, known, strict=True))
        outside = max(beside, 0.0) + _others(last, limit)
    sizes = [int((memory.get("dataset") or {}).get("batch_size") or 0) for _, memory in runs]
    (small, low), (large, high) = sorted(zip(sizes, (one.peak_bytes for one in known), strict=True))
    if small < 1 or large < _APART_RATIO * small or high - low < max(_GROWN_BYTES, _GROWN_RATIO * low):
        return None
    per_sample = (high - low) / (large - small)
    fixed = low - per_sample * small + outside
    largest = int((_FILLED_RATIO * limit - fixed) // per_sample)
    if fixed < outside or largest < 1:  # memory grew faster than the batch: no line
        return None
    return {
        "memory": kind,
        "batch_size": large,
        "largest": largest,
        "per_sample_bytes": per_sample,
        "fixed_bytes": fixed,
        "limit_bytes": _FILLED_RATIO * limit,
        "inferred": f"from two batch sizes ({small} and {large}): a line through their peaks",
    }


def batch_words(batch: dict[str, Any]) -> str:
    """What fits, in one sentence, with how that is known."""
    return (
        f"A batch of {batch['largest']:,} fits into {batch['memory']} memory: "
        f"{units.size(batch['fixed_bytes'])} fixed and {units.size(batch['per_sample_bytes'])} a sample, of "
        f"{units.size(batch['limit_bytes'])} to fill. Inferred {batch['inferred']}."
    )


def _others(recording: Recording, limit: float) -> float:
    """What other processes of the machine held; nothing of it counts in the run's own cgroup."""
    ram = float(recording.machine.get("ram_bytes") or 0.0)
    available = np.asarray(recording.system.get("memory_available_bytes", ()), float)
    known = available[np.isfinite(available)]
    return max(0.0, ram - float(known.max())) if len(known) and limit >= ram else 0.0
