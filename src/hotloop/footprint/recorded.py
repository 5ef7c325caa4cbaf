"""A dataset as a recording shows it: which loader trains, what a sample takes, who makes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hotloop.footprint.stages import Dataset, Stage
from hotloop.record.recording import Process, Recording
from hotloop.record.rows import FETCH, FETCH_END
from hotloop.record.spill import in_turn

#: Reads below this per sample are metadata and pipes; a worker reads about so much besides, for imports.
_MIN_READ_BYTES = 1024
_OWN_READ_BYTES = 2**20


def training_batch(process: Process) -> int:
    """Samples in a batch of the loader that trains; 0 where that is not known."""
    loader = training_loader(process)
    sizes = _sizes(process, int(loader.get("id", 0)))
    if not len(sizes):
        return int(loader.get("batch_size") or 0)
    values, counts = np.unique(sizes, return_counts=True)
    return int(values[counts.argmax()])


def training_loader(process: Process) -> Mapping[str, Any]:
    """The note of the loader that gave out most samples, one that shuffles before one that does not."""
    loaders = process.notes.get("loader", [])
    return max(
        loaders,
        key=lambda one: (bool(one.get("shuffle")), _sizes(process, int(one.get("id", 0))).sum()),
        default={},
    )


def _sizes(process: Process, loader: int) -> np.ndarray[Any, Any]:
    iterators = [one["id"] for one in process.notes.get("iterator", []) if one.get("loader") == loader]
    found = [np.zeros(0, np.int64)]
    for rows in in_turn(process.rows):
        fed = (rows["kind"] == FETCH) & ((rows["flags"] & FETCH_END) == 0) & np.isin(rows["obj"], iterators)
        sizes = rows["value"][fed]
        found.append(sizes[sizes > 0].astype(np.int64))
    return np.concatenate(found)


def dataset(recording: Recording) -> Dataset | None:
    """The training dataset of the first rank, None where no loader was seen."""
    process = recording.ranks[0]
    loader = training_loader(process)
    if not loader:
        return None
    batch = training_batch(process)
    facts = loader.get("dataset") or {}
    return Dataset(
        stages=tuple(_stages(process, int(loader["id"]), batch)),
        num_samples=int(facts.get("len") or 0),
        num_workers=int(loader.get("num_workers") or 0),
        num_ranks=len(recording.ranks),
        batch_size=batch or 1,
        prefetch_factor=int(loader.get("prefetch_factor") or 2),
        held_bytes=float(facts.get("bytes") or 0),
    )


def _stages(process: Process, loader: int, batch: int) -> list[Stage]:
    iterators = [one for one in process.notes.get("iterator", []) if one.get("loader") == loader]
    pids = {pid for one in iterators for pid in one.get("workers") or ()}
    workers = [worker for worker in process.workers if worker.pid in pids]
    read = (worker.last("worker_stat").get("rchar", 0) - _OWN_READ_BYTES for worker in workers)
    made = sum(max(0, size) for size in read)
    fetched = int(_sizes(process, loader).sum())
    stages = []
    if fetched and made / fetched >= _MIN_READ_BYTES:
        stages.append(Stage(name="read from files", sample_bytes=made / fetched))
    ids = [one["id"] for one in iterators]
    note = next((one for one in process.notes.get("batch", []) if one.get("iterator") in ids), {})
    if batch and note.get("bytes"):
        shapes = [(one["dtype"], one.get("shape") or ()) for one in note.get("fields", [])]
        fields = (f"{kind}[{','.join(map(str, of[1:]))}]" for kind, of in shapes if of and of[0] == batch)
        size = float(note["bytes"]) / batch
        stages.append(Stage(name="in the batch", sample_bytes=size, fields=tuple(fields)))
    return stages
