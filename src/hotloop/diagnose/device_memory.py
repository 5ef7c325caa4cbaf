"""The device's memory over time, from the notes the probe writes about once a second."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hotloop.diagnose.evidence import Evidence


def notes(evidence: Evidence) -> list[dict[str, Any]]:
    """The ``memory`` notes of the rank spoken about that tell of a device, in order."""
    process = next((one for one in evidence.recording.ranks if one.pid == evidence.steps.pid), None)
    found = process.notes.get("memory", []) if process is not None else []
    return [note for note in found if (note.get("device_reserved") or 0) > 0]


def column(found: list[dict[str, Any]], name: str) -> npt.NDArray[np.float64]:
    """One field of the notes, nan where it is missing; ``t`` in seconds."""
    values = np.array(
        [float(note.get(name, np.nan) if note.get(name) is not None else np.nan) for note in found]
    )
    return values / 1e9 if name == "t" else values


def capacity_bytes(evidence: Evidence) -> float | None:
    """Memory of the first GPU, None when unknown."""
    gpus = evidence.machine.get("gpus") or ()
    value = gpus[0].get("memory_bytes") if gpus and isinstance(gpus[0], dict) else None
    return float(value) if value else None
