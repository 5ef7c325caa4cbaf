"""The account of a run's memory, from its recording alone: what ``report.json`` has under ``memory``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from hotloop import units
from hotloop.diagnose.memory_use import limit_of, peak_of
from hotloop.diagnose.worker_memory import WorkerMemory, at_once, worker_memory
from hotloop.footprint.batch import LargestBatch, from_two
from hotloop.footprint.growing import growing
from hotloop.footprint.offline import tables
from hotloop.footprint.recorded import dataset, training_batch
from hotloop.footprint.stages import Dataset
from hotloop.footprint.training import Held, device_memory, host_memory
from hotloop.record.recording import Process, Recording


def account(recording: Recording, peak: float | None = None) -> dict[str, Any]:
    """Where memory went in a run. Sizes in bytes; what the recording does not tell is None or empty.

    ``peak`` is of all its processes, shared pages divided among their users, where that was sampled.
    ``host`` and ``device`` are of the first rank; ``workers`` of all.
    """
    if not recording.ranks:
        return {}
    process = recording.ranks[0]
    host, device = host_memory(recording, process), device_memory(recording, process)
    data, makers = dataset(recording), worker_memory(recording)
    limit, peak = limit_of(recording.machine), peak or peak_of(recording)
    grown, in_workers = growing(process), _in_workers(process)
    return {
        "run_peak_bytes": peak or None,
        "host": _held(host),
        "device": _held(device),
        "workers": _workers(makers, data),
        **tables(data, int(limit or 0), peak),
        "batch": None,  # takes two runs: ``compare``
        "growing": grown,
        "growing_worker": in_workers,
        "advice": _advice(grown, in_workers),
    }


def compare(first: tuple[Recording, float], second: tuple[Recording, float]) -> LargestBatch | None:
    """The largest batch from two runs of one command at two batch sizes; None where no line shows.

    Each run comes with the peak of all its processes in bytes.
    """
    ends = []
    for recording, peak in (first, second):
        if not recording.ranks:
            return None
        process = recording.ranks[0]
        device = device_memory(recording, process)
        ends.append((training_batch(process), device, host_memory(recording, process), peak))
    (size, device, host, peak), (other, device2, host2, peak2) = ends
    recording = second[0]
    if device and device2 and device.capacity_bytes:
        slack = max((held.reserved_bytes or held.peak_bytes) - held.peak_bytes for held in (device, device2))
        return from_two(
            "device",
            (size, device.peak_bytes),
            (other, device2.peak_bytes),
            outside_bytes=max(device.outside_bytes, device2.outside_bytes) + slack,
            limit_bytes=device.capacity_bytes,
        )
    limit = limit_of(recording.machine)
    if host is None or host2 is None or limit is None:
        return None
    beside = max(peak - host.peak_bytes, peak2 - host2.peak_bytes, 0.0)
    return from_two(
        "host",
        (size, host.peak_bytes),
        (other, host2.peak_bytes),
        outside_bytes=beside + _others(recording, limit),
        limit_bytes=limit,
    )


def _others(recording: Recording, limit: float) -> float:
    """What other processes of the machine held; nothing of it counts in the run's own cgroup."""
    ram = float(recording.machine.get("ram_bytes") or 0.0)
    available = recording.system.get("memory_available_bytes")
    if limit < ram or available is None:
        return 0.0
    known = np.asarray(available, float)
    known = known[np.isfinite(known)]
    return max(0.0, ram - float(known.max())) if len(known) else 0.0


def _held(held: Held | None) -> dict[str, Any] | None:
    if held is None:
        return None
    parts = [{"name": name, "bytes": size} for name, size in held.parts]
    return {**asdict(held), "parts": parts}


def _workers(makers: Sequence[WorkerMemory], data: Dataset | None) -> dict[str, Any] | None:
    if not makers:
        return None
    together = at_once(makers)
    copied = sum(one.copied_bytes for one in together)
    held = data.held_bytes if data else 0.0
    return {
        "each": [{**asdict(one), "own_bytes": one.own_bytes} for one in makers],
        "at_once": len(together),
        "private_bytes": sum(one.private_bytes for one in together),
        "copied_bytes": copied,
        "own_bytes": sum(one.own_bytes for one in together),
        # What every worker would have copied once it has touched all that the dataset object holds.
        "worst_copied_bytes": max(copied, held * len(together))
        if any(one.forked for one in makers)
        else copied,
    }


def _in_workers(process: Process) -> dict[str, Any] | None:
    """What grows in the worker that grows most; its ``steps`` are the batches that it made."""
    found = [{"pid": one.pid, **grown} for one in process.workers if (grown := growing(one)) is not None]
    return max(found, key=lambda one: sum(line["bytes"] for line in one["lines"]), default=None)


def _advice(grown: dict[str, Any] | None, in_workers: dict[str, Any] | None) -> list[str]:
    lines = []
    if grown is not None:
        lines += _names(grown)
    if in_workers is not None and in_workers["lines"]:
        one = in_workers["lines"][0]
        lines.append(
            f"Look at {one['file']}:{one['line']}: what it makes in a worker stays there, "
            f"{units.size(one['bytes_per_step'])} a batch."
        )
    return lines


def batch_words(batch: LargestBatch) -> str:
    """What fits, in one sentence, with how that is known."""
    return (
        f"A batch of {batch.largest:,} fits into {batch.memory} memory: {units.size(batch.fixed_bytes)} "
        f"fixed and {units.size(batch.per_sample_bytes)} a sample, of {units.size(batch.limit_bytes)} to "
        f"fill. Inferred {batch.inferred}."
    )


def _names(grown: dict[str, Any]) -> list[str]:
    if grown["containers"]:
        one = grown["containers"][0]
        holder = f" in {one['holder']}" if one["holder"] else ""
        name = f"{one['type']} {one['name']!r}" if one["name"] else f"a {one['type']}"
        return [f"Bound or empty {name}{holder}: it takes {one['items_per_step']:.3g} items more every step."]
    if grown["lines"]:
        one = grown["lines"][0]
        return [
            f"Look at {one['file']}:{one['line']}: what it makes stays, "
            f"{units.size(one['bytes_per_step'])} a step."
        ]
    return []
