"""The account of a run's memory, from its recording alone: what ``report.json`` has under ``memory``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from hotloop import units
from hotloop.diagnose.memory_use import limit_of, peak_of
from hotloop.diagnose.worker_memory import WorkerMemory, at_once, worker_memory
from hotloop.footprint.budgets import tables
from hotloop.footprint.growing import growing
from hotloop.footprint.recorded import dataset
from hotloop.footprint.stages import Dataset
from hotloop.footprint.training import device_memory, host_memory
from hotloop.measure.steps import Steps
from hotloop.record.recording import Process, Recording


def account(recording: Recording, steps: Steps | None, peak: float | None = None) -> dict[str, Any]:
    """Where memory went in a run. Sizes in bytes; what the recording does not tell is None or empty.

    ``steps`` is the rank that the report is about. ``peak`` is of all its processes, shared pages divided
    among their users, where that was sampled. ``host`` and ``device`` are of the first rank; ``workers`` of
    all.
    """
    if not recording.ranks:
        return {}
    process = recording.ranks[0]
    data, makers = dataset(recording, steps), worker_memory(recording)
    limit, peak = limit_of(recording.machine), peak or peak_of(recording)
    grown, in_workers = growing(process), _in_workers(process)
    return {
        "run_peak_bytes": peak or None,
        "host": host_memory(recording, process, data.held_bytes if data else 0.0),
        "device": device_memory(recording, process),
        "workers": _workers(makers, data),
        **tables(data, int(limit or 0), peak),
        "growing": grown,
        "growing_worker": in_workers,
        "advice": _advice(grown, in_workers),
    }


def _workers(makers: Sequence[WorkerMemory], data: Dataset | None) -> dict[str, Any] | None:
    if not makers:
        return None
    together = at_once(makers)
    copied = sum(one.copied_bytes for one in together)
    held = data.held_bytes if data and any(one.forked for one in makers) else 0.0
    return {
        "each": [{**asdict(one), "own_bytes": one.own_bytes} for one in makers],
        "at_once": len(together),
        "private_bytes": sum(one.private_bytes for one in together),
        "copied_bytes": copied,
        "own_bytes": sum(one.own_bytes for one in together),
        # What every worker would have copied once it has touched all that the dataset object holds.
        "worst_copied_bytes": max(copied, held * len(together)),
    }


def _in_workers(process: Process) -> dict[str, Any] | None:
    """What grows in the worker that grows most; its ``steps`` are the batches that it made."""
    found = [{"pid": one.pid, **grown} for one in process.workers if (grown := growing(one)) is not None]
    return max(found, key=lambda one: sum(line["bytes"] for line in one["lines"]), default=None)


def _advice(grown: dict[str, Any] | None, in_workers: dict[str, Any] | None) -> list[str]:
    lines = []
    if grown is not None and grown["containers"]:
        one = grown["containers"][0]
        holder = f" in {one['holder']}" if one["holder"] else ""
        name = f"{one['type']} {one['name']!r}" if one["name"] else f"a {one['type']}"
        lines.append(
            f"Bound or empty {name}{holder}: it takes {one['items_per_step']:.3g} items more every step."
        )
    elif grown is not None and grown["lines"]:
        lines.append(_look_at(grown["lines"][0], "stays", "step"))
    if in_workers is not None and in_workers["lines"]:
        lines.append(_look_at(in_workers["lines"][0], "in a worker stays there", "batch"))
    return lines


def _look_at(one: dict[str, Any], stays: str, each: str) -> str:
    return (
        f"Look at {one['file']}:{one['line']}: what it makes {stays}, "
        f"{units.size(one['bytes_per_step'])} a {each}."
    )
