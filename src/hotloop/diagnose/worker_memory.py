"""What DataLoader workers copy: memory they share after the fork and lose, page by page, by reading objects.

A forked worker has its parent's pages mapped from the start: they count as resident and cost nothing. Reading
a Python object writes its reference count, which copies the page: resident memory stays, private memory
grows. What the worker allocates itself makes both grow. So what was copied until a sample is its private
memory (``uss`` of ``/proc/PID/smaps_rollup``) less the growth of its resident memory since it was first seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hotloop.record.recording import Process, Recording
from hotloop.record.samples import finite


@dataclass(frozen=True, kw_only=True)
class WorkerMemory:
    """One worker's memory in bytes at its last sample that tells it, ``seconds`` after the first.

    Without a fork there is nothing to copy: ``copied`` is 0 and ``own`` is all that is private.
    """

    pid: int
    rank: int
    forked: bool
    private_bytes: float
    copied_bytes: float
    copied_first_bytes: float  # at the first sample
    seconds: float
    from_s: float  # when it was sampled first and last, on the launcher's clock
    until_s: float

    @property
    def own_bytes(self) -> float:
        """Private memory that the worker allocated itself."""
        return self.private_bytes - self.copied_bytes


def private(columns: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.float64]:
    """[samples] resident bytes a process does not share: what it has grown to by itself."""
    if "rss_bytes" not in columns:
        return np.zeros(0)
    shared = columns.get("shared_bytes")
    rss = np.asarray(columns["rss_bytes"], float)
    return rss - np.asarray(shared, float) if shared is not None else rss


def worker_memory(recording: Recording) -> tuple[WorkerMemory, ...]:
    """Every worker with at least one proportional sample."""
    found = []
    for process in recording.ranks:
        for worker in process.workers:
            one = _worker(worker, recording.process_system.get(worker.pid, {}))
            if one is not None:
                found.append(one)
    return tuple(found)


def at_once(workers: Sequence[WorkerMemory]) -> tuple[WorkerMemory, ...]:
    """Those that lived at the same time, where these hold most: the others had ended or were yet to start."""
    living = (tuple(one for one in workers if one.from_s <= now.from_s <= one.until_s) for now in workers)
    return max(living, key=lambda some: sum(one.private_bytes for one in some), default=())


def _worker(worker: Process, columns: Mapping[str, Any]) -> WorkerMemory | None:
    if "uss_bytes" not in columns or "t_s" not in columns:
        return None
    seconds, uss = np.asarray(columns["t_s"], float), np.asarray(columns["uss_bytes"], float)
    anonymous = private(columns)
    known = np.flatnonzero(np.isfinite(uss) & np.isfinite(anonymous))
    if not len(known):
        return None
    forked = _is_forked(worker)
    start = float(anonymous[np.isfinite(anonymous)][0])
    grown = np.maximum(0.0, anonymous - start)
    copied = np.clip(uss - grown, 0.0, start) if forked else np.zeros(len(uss))
    first, last = int(known[0]), int(known[-1])
    return WorkerMemory(
        pid=worker.pid,
        rank=worker.rank,
        forked=forked,
        private_bytes=float(uss[last]),
        copied_bytes=float(copied[last]),
        copied_first_bytes=float(copied[first]),
        seconds=float(seconds[last] - seconds[first]),
        from_s=float(seconds[0]),
        until_s=float(seconds[-1]),
    )


def shared_since_fork(recording: Recording) -> dict[int, float]:
    """Forked worker -> resident bytes that are its parent's pages still, and no memory of its own."""
    copied = {one.pid: one.copied_bytes for one in worker_memory(recording)}
    shared = {}
    for worker in (one for process in recording.ranks for one in process.workers if _is_forked(one)):
        known = finite(private(recording.process_system.get(worker.pid, {})))
        if len(known):
            shared[worker.pid] = max(0.0, float(known[0]) - copied.get(worker.pid, 0.0))
    return shared


def _is_forked(worker: Process) -> bool:
    return worker.first("process").get("start_method") == "fork"
