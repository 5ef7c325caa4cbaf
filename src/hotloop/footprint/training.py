"""What the training process holds, on the host and on the device, by what it is for.

Known sizes come from the probe's notes: optimizers say what their parameters, gradients and state take after
the first step; modules, what is frozen; ``memory`` notes, what is there at the end of a step, once a second.
The rest is named by when it is there: between steps, or only during one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hotloop.record.recording import Process, Recording
from hotloop.record.samples import finite

#: Kinds of memory an optimizer's note tells of, in its order.
_HELD = ("parameters", "gradients", "optimizer state")


def device_memory(recording: Recording, process: Process) -> dict[str, Any] | None:
    """The device's memory as torch's allocator counts it, None where no device was used."""
    notes = [note for note in process.notes.get("memory", []) if (note.get("device_reserved") or 0) > 0]
    if not notes:
        return None
    peak = _largest(notes, "device_peak") or _largest(notes, "device_allocated")
    between = _typical(notes, "device_allocated")
    reserved = max(peak, _largest(notes, "device_reserved"))
    known = _known_sizes(process, on_device=True, most=between)
    parts = known | {
        "other tensors kept": between - sum(known.values()),
        "activations, workspace": peak - between,
    }
    gpus = recording.machine.get("gpus") or ()
    gpu: Mapping[str, Any] = next((one for one in gpus if one.get("visible", True)), {})
    used = finite(recording.system.get(f"gpu{gpu.get('index') or 0}_memory_bytes")).max(initial=0.0)
    return _held(
        peak,
        between,
        parts,
        capacity_bytes=float(gpu["memory_bytes"]) if gpu.get("memory_bytes") else None,
        reserved_bytes=reserved,
        outside_bytes=max(0.0, float(used) - reserved),
    )


def host_memory(recording: Recording, process: Process, dataset_bytes: float) -> dict[str, Any] | None:
    """Resident memory of the training process, None where it was not noted."""
    notes = [note for note in process.notes.get("memory", []) if note.get("host_rss")]
    if not notes:
        return None
    peak = host_peak(recording, process)
    imported = float(notes[0]["host_rss"])
    between = min(peak, max(imported, _typical(notes[1:-1] or notes, "host_rss")))
    known = _known_sizes(process, on_device=False, most=between - imported)
    rest = between - imported - sum(known.values())
    held = min(dataset_bytes, max(0.0, rest))
    parts = {
        "python, torch, libraries": imported,
        **known,
        "dataset object": held,
        "else, between steps": rest - held,
        "during a step": peak - between,
    }
    return _held(peak, between, parts)


def host_peak(recording: Recording, process: Process) -> float:
    """The most resident memory of the training process, 0 where it was not noted."""
    notes = process.notes.get("memory", [])
    noted = max(_largest(notes, "VmHWM"), _largest(notes, "host_rss"))
    sampled = finite(recording.process_system.get(process.pid, {}).get("rss_bytes"))
    return max(noted, float(sampled.max(initial=0.0))) if _largest(notes, "host_rss") else 0.0


def _held(
    peak: float, between: float, parts: Mapping[str, float], **of_device: float | None
) -> dict[str, Any]:
    """One memory (host or device) of one training process; the parts sum to its peak.

    ``between_bytes`` is what is held from step to step, ``outside_bytes`` what others hold of a device.
    """
    return {
        "peak_bytes": peak,
        "between_bytes": between,
        "parts": [{"name": name, "bytes": size} for name, size in parts.items()],
        "capacity_bytes": None,
        "reserved_bytes": None,
        "outside_bytes": 0.0,
        **of_device,
    }


def _known_sizes(process: Process, *, on_device: bool, most: float) -> dict[str, float]:
    """Parameters, gradients, optimizer state, and what is frozen, no more than ``most`` together."""
    sizes = dict.fromkeys((*_HELD, "frozen, buffers"), 0.0)
    for note in process.notes.get("optimizer", []):
        for device, held in (note.get("held") or {}).items():
            if (device != "cpu") == on_device:
                for name, size in zip(_HELD, held, strict=True):
                    sizes[name] += float(size)
    for note in {note["id"]: note for note in process.notes.get("module", [])}.values():
        if any(not str(device).startswith("cpu") for device in note.get("devices") or ()) == on_device:
            sizes["frozen, buffers"] += note["param_bytes"] - note["trainable_bytes"] + note["buffer_bytes"]
    for name in sizes:
        sizes[name] = min(sizes[name], max(0.0, most))
        most -= sizes[name]
    return sizes


def _largest(notes: list[Any], name: str) -> float:
    return max((float(note[name]) for note in notes if note.get(name)), default=0.0)


def _typical(notes: list[Any], name: str) -> float:
    """The median of the second half: what is there once training is under way."""
    values = [float(note[name]) for note in notes if note.get(name) is not None]
    return float(np.median(values[len(values) // 2 :])) if values else 0.0
