"""The account of a run's memory, from its recording alone: what ``report.json`` has under ``memory``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np

from hotloop import units
from hotloop.diagnose.memory_use import limit_of, peak_of
from hotloop.diagnose.worker_memory import WorkerMemory, at_once, worker_memory
from hotloop.footprint.budgets import Dataset, Stage, tables
from hotloop.footprint.training import device_memory, host_memory
from hotloop.measure.steps import LoaderUse, Steps
from hotloop.record.recording import Note, Process, Recording


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
    grown = growing(process)
    each = [{"pid": one.pid, **found} for one in process.workers if (found := growing(one)) is not None]
    # Of the worker that grows most; its ``steps`` are the batches that it made.
    in_workers = max(each, key=lambda one: sum(line["bytes"] for line in one["lines"]), default=None)
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
        f"Look at {one['file'].rpartition('/')[2]}:{one['line']}: what it makes {stays}, "
        f"{units.size(one['bytes_per_step'])} a {each}."
    )


# Leaks by name


Sizes = tuple[float, float]

#: Looks that are needed at least, each showing more than the one before.
_LOOKS = 3
#: Growth of a line smaller than this is the housekeeping of libraries.
_MIN_BYTES = 128 * 2**10
#: Objects or items that come with every step, at least.
_PER_STEP = 0.5
_MOST = 5


def growing(process: Process) -> dict[str, Any] | None:
    """What grew steadily over the last looks, the largest first; None where fewer than three were taken."""
    looks = [note for note in process.notes.get("growth", []) if note.get("steps", 0) > 0]
    traced = [note for note in looks if note["lines"]]
    if len(looks) < _LOOKS:
        return None
    last = looks[-1]
    lines = [
        {"file": key[0], "line": key[1], "bytes": values[0], "blocks": values[1], "bytes_per_step": rate}
        for key, values, rate in _steady(traced, lambda note: _pairs(note["lines"]), by=0)
        if rate * last["steps"] >= _MIN_BYTES
    ]
    types = [
        {"name": name, "bytes": values[0], "count": values[1], "count_per_step": rate}
        for name, values, rate in _steady(looks, lambda note: _pairs(note["types"]), by=1)
        if rate >= _PER_STEP
    ]
    containers = [
        {"type": key[0], "holder": key[1], "name": key[2], "length": values[0], "items_per_step": rate}
        for key, values, rate in _steady(looks, _containers, by=0)
        if rate >= _PER_STEP
    ]
    return {
        "steps": last["steps"],
        "seconds": last["seconds"],
        "lines": sorted(lines, key=lambda one: -one["bytes"])[:_MOST],
        "types": sorted(types, key=lambda one: (-one["bytes"], -one["count"]))[:_MOST],
        "containers": sorted(containers, key=lambda one: -one["items_per_step"])[:_MOST],
    }


def _pairs(entries: Iterable[list[Any]]) -> dict[Any, Sizes]:
    return {tuple(key) if isinstance(key, list) else key: (size, count) for key, size, count in entries}


def _containers(note: Note) -> dict[Any, Sizes]:
    return {(kind, holder, name): (length, more) for kind, holder, name, length, more in note["containers"]}


def _steady(
    looks: Sequence[Note], values: Callable[[Note], Mapping[Any, Sizes]], *, by: int
) -> Iterator[tuple[Any, Sizes, float]]:
    """What grew with the steps through the last looks: key, values at the last, and growth per step.

    In each of the last intervals the value ``by`` must grow at half the rate of all of them or more: what is
    made once, or comes and goes, does not.
    """
    if len(looks) < _LOOKS:
        return
    seen = [(int(note["steps"]), values(note)) for note in looks[-_LOOKS - 1 :]]
    (begin, first), (end, last) = seen[0], seen[-1]
    for key, sizes in last.items():
        if end <= begin or not all(key in found for _, found in seen):
            continue
        rate = (sizes[by] - first[key][by]) / (end - begin)
        rises = (
            later[key][by] - earlier[key][by] >= 0.5 * rate * (after - before)
            for (before, earlier), (after, later) in pairwise(seen)
        )
        if rate > 0 and all(rises):
            yield key, sizes, rate


#: Reads below this per sample are metadata and pipes; a worker reads about so much besides, for imports.
_MIN_READ_BYTES = 1024
_OWN_READ_BYTES = 2**20


def dataset(recording: Recording, steps: Steps | None) -> Dataset | None:
    """The training dataset of the rank that was measured, None where no loader drives training."""
    loader = steps.train_loader() if steps is not None else None
    if steps is None or loader is None:
        return None
    known = steps.samples[np.isfinite(steps.samples)]
    batch = int(np.median(known)) if len(known) else int(loader.settings.get("batch_size") or 0)
    return Dataset(
        stages=tuple(_stages(loader, batch)),
        num_samples=int(loader.dataset.get("len") or 0),
        num_workers=int(loader.settings.get("num_workers") or 0),
        num_ranks=len(recording.ranks),
        batch_size=batch or 1,
        prefetch_factor=int(loader.settings.get("prefetch_factor") or 2),
        held_bytes=float(loader.dataset.get("bytes") or 0),
    )


def _stages(loader: LoaderUse, batch: int) -> Iterator[Stage]:
    read = loader.worker_stats.get("rchar_bytes", 0.0) - loader.num_worker_processes * _OWN_READ_BYTES
    fetched = loader.num_batches * batch
    if fetched and read / fetched >= _MIN_READ_BYTES:
        yield Stage(name="read from files", sample_bytes=read / fetched)
    if batch and loader.batch_bytes:
        shapes = [(one.get("dtype"), one.get("shape") or ()) for one in loader.batch_fields]
        fields = (f"{kind}[{','.join(map(str, of[1:]))}]" for kind, of in shapes if of and of[0] == batch)
        yield Stage(name="in the batch", sample_bytes=loader.batch_bytes / batch, fields=tuple(fields))
