"""What the training process holds, on the host and on the device, by what it is for.

Known sizes come from the probe's notes: optimizers say what their parameters, gradients and state take after
the first step; modules, what is frozen; ``memory`` notes, what is there at the end of a step, once a second.
The rest is named by when it is there: between steps, or only during one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotloop.footprint.recorded import training_loader
from hotloop.record.recording import Process, Recording

#: Kinds of memory an optimizer's note tells of, in its order.
_HELD = ("parameters", "gradients", "optimizer state")


@dataclass(frozen=True, kw_only=True)
class Held:
    """One memory (host or device) of one training process. ``parts`` sum to ``peak_bytes``.

    ``between_bytes`` is what is held from step to step, ``outside_bytes`` what others hold of a device.
    """

    peak_bytes: float
    between_bytes: float
    parts: tuple[tuple[str, float], ...]
    capacity_bytes: float | None = None
    reserved_bytes: float | None = None
    outside_bytes: float = 0.0


def device_memory(recording: Recording, process: Process) -> Held | None:
    """The device's memory as torch's allocator counts it, None where no device was used."""
    notes = [note for note in process.notes.get("memory", []) if (note.get("device_reserved") or 0) > 0]
    if not notes:
        return None
    peak = _largest(notes, "device_peak") or _largest(notes, "device_allocated")
    between = _typical(notes, "device_allocated")
    reserved = max(peak, _largest(notes, "device_reserved"))
    known = _known_sizes(process, on_device=True, most=between)
    parts = [
        *known,
        ("other tensors kept", between - sum(size for _, size in known)),
        ("activations, workspace", peak - between),
    ]
    gpu: Mapping[str, Any] = next(
        (one for one in recording.machine.get("gpus") or () if one.get("visible", True)), {}
    )
    used = _device_used(recording, int(gpu.get("index") or 0))
    return Held(
        peak_bytes=peak,
        between_bytes=between,
        parts=tuple(parts),
        capacity_bytes=float(gpu["memory_bytes"]) if gpu.get("memory_bytes") else None,
        reserved_bytes=reserved,
        outside_bytes=max(0.0, used - reserved) if used else 0.0,
    )


def host_memory(recording: Recording, process: Process) -> Held | None:
    """Resident memory of the training process, None where it was not noted."""
    notes = [note for note in process.notes.get("memory", []) if note.get("host_rss")]
    if not notes:
        return None
    sampled = recording.process_system.get(process.pid, {}).get("rss_bytes", ())
    seen = [float(value) for value in sampled if np.isfinite(value)]
    peak = max([_largest(notes, "VmHWM"), _largest(notes, "host_rss"), *seen])
    imported = float(notes[0]["host_rss"])
    steps = notes[1:-1] if len(notes) > 2 else notes
    between = min(peak, max(imported, _typical(steps, "host_rss")))
    known = _known_sizes(process, on_device=False, most=between - imported)
    facts = training_loader(process).get("dataset") or {}
    taken = imported + sum(size for _, size in known)
    held = min(float(facts.get("bytes") or 0), max(0.0, between - taken))
    parts = [
        ("python, torch, libraries", imported),
        *known,
        ("dataset object", held),
        ("else, between steps", between - taken - held),
        ("during a step", peak - between),
    ]
    return Held(peak_bytes=peak, between_bytes=between, parts=tuple(parts))


def _known_sizes(process: Process, *, on_device: bool, most: float) -> list[tuple[str, float]]:
    """Parameters, gradients, optimizer state, and what is frozen, no more than ``most`` together."""
    sums = dict.fromkeys(_HELD, 0.0)
    for note in process.notes.get("optimizer", []):
        for device, sizes in (note.get("held") or {}).items():
            if (device != "cpu") == on_device:
                for name, size in zip(_HELD, sizes, strict=True):
                    sums[name] += float(size)
    modules = {note["id"]: note for note in process.notes.get("module", [])}.values()
    frozen = sum(_frozen(note) for note in modules if _on_device(note) == on_device)
    found = []
    for name, size in (*sums.items(), ("frozen, buffers", frozen)):
        size = min(size, max(0.0, most))
        most -= size
        found.append((name, size))
    return found


def _frozen(module: Mapping[str, Any]) -> float:
    """Bytes of a module that no optimizer changes: parameters that are not trained, and buffers."""
    if "trainable_bytes" not in module:  # a recording from before they were noted
        return 0.0
    return float(module["param_bytes"] - module["trainable_bytes"] + module["buffer_bytes"])


def _on_device(module: Mapping[str, Any]) -> bool:
    return any(not str(device).startswith("cpu") for device in module.get("devices") or ())


def _device_used(recording: Recording, index: int) -> float:
    values = recording.system.get(f"gpu{index}_memory_bytes")
    known = [float(value) for value in values if np.isfinite(value)] if values is not None else []
    return max(known, default=0.0)


def _largest(notes: list[Any], name: str) -> float:
    return max((float(note[name]) for note in notes if note.get(name)), default=0.0)


def _typical(notes: list[Any], name: str) -> float:
    """The median of the second half: what is there once training is under way."""
    values = [float(note[name]) for note in notes if note.get(name) is not None]
    return float(np.median(values[len(values) // 2 :])) if values else 0.0
