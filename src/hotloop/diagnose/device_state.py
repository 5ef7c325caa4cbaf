"""How busy the accelerator was, what it is, and how much of its memory the run used; None where nobody looked."""

from __future__ import annotations

import re

import numpy as np

from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.facts import entries, flag
from hotloop.measure.steps import Steps
from hotloop.record.recording import Note

_COMPUTING = ("forward", "backward", "optimizer")
#: Devices older than TF32 and bfloat16 (before compute capability 8), and those without tensor cores at all.
_BEFORE_AMPERE = re.compile(r"\b(K\d0|M\d0|P\d+|V100|T4|GTX|TITAN|Quadro|RTX 20\d\d|RTX [3-8]000)\b", re.I)
_NO_TENSOR_CORES = re.compile(r"\b(K\d0|M\d0|P\d+|GTX|TITAN X[Pp]?)\b", re.I)


def busy_ratio(evidence: Evidence) -> float | None:
    """Share of time the device worked: its own clock, else the driver's utilization in the run's second half."""
    if evidence.steps.device is not None:
        return evidence.steps.device.busy_ratio
    for name, column in evidence.recording.system.items():
        if name.startswith("gpu") and "util" in name and "mem" not in name and len(column) >= 4:
            tail = np.asarray(column[len(column) // 2 :], dtype=float)
            tail = tail[np.isfinite(tail)]
            return float(tail.mean()) / 100 if len(tail) else None
    return None


def device_bound(evidence: Evidence) -> bool:
    """Whether the device is what the run waits for: only then does its own speed matter."""
    busy = busy_ratio(evidence)
    return evidence.on_accelerator and busy is not None and busy >= evidence.limits.device_bound_ratio


def device_s(evidence: Evidence) -> float:
    """Seconds per step the device works in a device-bound run."""
    return (busy_ratio(evidence) or 0.0) * evidence.steps.step_s


def launching_idle_s(steps: Steps) -> float:
    """Seconds over the span the device idled while the host was in forward, backward or the optimizer."""
    if steps.device is None:
        return 0.0
    return sum(steps.device.idle_s_by_phase.get(phase, 0.0) for phase in _COMPUTING)


def has_tf32(evidence: Evidence) -> bool:
    """Whether the device knows TF32 and bfloat16."""
    name = _name(evidence)
    return bool(name) and not _BEFORE_AMPERE.search(name)


def has_tensor_cores(evidence: Evidence) -> bool:
    """Whether half precision is faster on the device than single precision."""
    name = _name(evidence)
    return bool(name) and not _NO_TENSOR_CORES.search(name)


def memory_ratio(evidence: Evidence) -> float | None:
    """Peak of the memory torch reserved or allocated, as a share of the device's; None when unknown."""
    peaks = [float(note.get("device_peak") or 0) for note in _memory_notes(evidence)]
    totals = [float(gpu.get("memory_bytes") or 0) for gpu in evidence.machine.get("gpus") or ()]
    peak, total = max(peaks, default=0.0), min(totals, default=0.0)
    return peak / total if peak > 0 and total > 0 else None


def _memory_notes(evidence: Evidence) -> list[Note]:
    for process in evidence.recording.ranks:
        if process.pid == evidence.steps.pid:
            return process.notes.get("memory", [])
    return [dict(note) for note in entries(evidence.steps, "memory")]


def _name(evidence: Evidence) -> str:
    return str(flag(evidence.steps, "device_name") or "")
