"""What runs in a worker process: read samples, collate them into the slot that came with the task, say so."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter_ns, thread_time_ns
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import _utils as torch_utils

from hotloop.feed import randomness
from hotloop.feed.arena import Arena
from hotloop.feed.channel import Ends
from hotloop.feed.collating import stacking
from hotloop.feed.memory import SharedFile, keep_freed_memory
from hotloop.feed.packing import Spans, pack
from hotloop.feed.reading import Reader, Reading
from hotloop.feed.ring import COLLATING, FETCHING, STARTING, STOP, WAITING, progress_of

#: What a message to a worker begins with: a batch to make, a new epoch.
TASK: Final = 0
EPOCH: Final = 1
#: What a reply begins with: a batch in its slot, an exception, the end of an iterable.
BATCH: Final = 0
FAILED: Final = 1
EXHAUSTED: Final = 2

#: What is left of a batch travels in the reply up to this size, else it lies in the slot.
_INLINE_BYTES: Final = 2048


class Reply(NamedTuple):
    """A worker's word on one task. ``kept``: somebody there still looks at the slot, never write to it.

    ``meta`` is the pickled batch (or its place in the slot), or the pickled exception.
    """

    kind: int
    task: int
    capacity: int
    used: int
    kept: bool
    wall_ns: int
    cpu_ns: int
    meta: bytes | tuple[int, int]
    spans: Spans


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What every worker of one iterator is told.

    ``epoch`` is the number of the iterator's epoch (seeds of samples).
    """

    reading: Reading
    file: SharedFile
    base_seed: int
    num_workers: int
    init_fn: Callable[[int], None] | None
    seed_by: str
    epoch: int


class Stopped(BaseException):
    """The loader wants no more batches: leave the one being made."""


def run(setup: Setup, ends: Ends, worker: int) -> None:
    """A worker process from its first to its last moment."""
    try:
        ends.die_with_loader()
        enter(setup, worker)
        Worker(setup, ends, worker).serve()
    except (KeyboardInterrupt, BrokenPipeError, Stopped):
        pass  # the loader is gone, or will say it itself


def enter(setup: Setup, worker: int) -> None:
    """Make this process what torch's workers are: handlers, one thread, seeds, worker info."""
    keep_freed_memory()
    torch_utils.signal_handling._set_worker_signal_handlers()
    set_name = getattr(torch.multiprocessing, "_set_thread_name", None)
    if set_name is not None:
        set_name("pt_data_worker")
    torch.set_num_threads(1)
    seed = setup.base_seed + worker
    random.seed(seed)
    torch.manual_seed(seed)
    np.random.seed(torch_utils.worker._generate_state(setup.base_seed, worker))
    torch_utils.worker._worker_info = torch_utils.worker.WorkerInfo(
        id=worker, num_workers=setup.num_workers, seed=seed, dataset=setup.reading.dataset
    )
    table = torch_utils.collate.default_collate_fn_map
    if table.get(torch.Tensor) is torch_utils.collate.collate_tensor_fn:
        table[torch.Tensor] = stacking(_slot_memory)  # whoever collates here: this process is ours


class Worker:
    """Serves one loader until its pipe ends."""

    def __init__(self, setup: Setup, ends: Ends, worker: int) -> None:
        self._setup = setup
        self._ends = ends
        self._worker = worker
        self._arena = Arena(setup.file)
        self._progress = progress_of(setup.file)
        self._mark = 1 + 2 * worker
        self._epoch = setup.epoch
        self._first = 0  # number in the epoch of the batch's first sample
        self._reader: Reader | None = None
        self._init_error: ExceptionWrapper | None = None

    def serve(self) -> None:
        """Answer every message, in the order they came."""
        self._begin()
        receive = self._ends.receive
        while (message := receive()) is not None:
            if message[0] == TASK:
                self._make(*message[1:])
                continue
            self._epoch += 1
            if self._init_error is None:
                self._reader = self._new_reader()

    def _begin(self) -> None:
        self._say(-1, STARTING)
        try:
            if self._setup.init_fn is not None:
                self._setup.init_fn(self._worker)
            self._reader = self._new_reader()
        except Exception:
            self._init_error = ExceptionWrapper(where=f"in DataLoader worker process {self._worker}")
        self._say(-1, WAITING)

    def _new_reader(self) -> Reader:
        return Reader(self._setup.reading, out=_slot_memory, around=self._around, watch=self._watch)

    # -- one batch -------------------------------------------------------------------------------------------

    def _make(self, task: int, slot: int, capacity: int, first: int, index: bytes) -> None:
        started, cpu = perf_counter_ns(), thread_time_ns()
        arena = self._arena
        arena.open(slot, capacity)
        self._first = first
        self._say(task, FETCHING)
        kind, meta, spans = self._attempt(task, index)
        capacity, used = arena.capacity, arena.used
        kept = arena.close()
        wall = perf_counter_ns() - started
        self._say(task, WAITING)
        cpu = thread_time_ns() - cpu
        self._ends.send(tuple(Reply(kind, task, capacity, used, kept, wall, cpu, meta, spans)))

    def _attempt(self, task: int, index: bytes) -> tuple[int, bytes | tuple[int, int], Spans]:
        """Make the batch in the open slot: what it came to, and what there is to say about it."""
        try:
            if self._init_error is not None:
                error, self._init_error = self._init_error, None
                return FAILED, _portable(error), ()
            assert self._reader is not None, "worker_init_fn failed"
            meta, spans = pack(self._reader.read(pickle.loads(index)), self._arena)  # nosec B301
            if len(meta) <= _INLINE_BYTES:
                return BATCH, meta, spans
            address = np.frombuffer(meta, np.uint8).ctypes.data
            return BATCH, (self._arena.place(address, len(meta)), len(meta)), spans
        except Exception as error:
            if isinstance(error, StopIteration) and self._setup.reading.is_iterable:
                return EXHAUSTED, b"", ()
            return FAILED, _portable(ExceptionWrapper(where=self._where(task))), ()

    def _where(self, task: int) -> str:
        place = self._progress[self._mark + 1]
        where = f"in DataLoader worker process {self._worker}"
        if place >= 0 and self._reader is not None:
            return f"{where}, reading sample {self._reader.sample(place)!r} (number {place} of batch {task})"
        return f"{where}, {'collating' if place == COLLATING else 'making'} batch {task}"

    # -- what the reader asks for ----------------------------------------------------------------------------

    def _around(self, collate: Callable[[Any], Any], samples: Any) -> Any:
        """Collate with the slot at hand."""
        global _open_arena
        self._progress[self._mark + 1] = COLLATING
        _open_arena = self._arena
        try:
            return collate(samples)
        finally:
            _open_arena = None

    def _watch(self, indices: Iterator[Any]) -> Iterator[Any]:
        """The indices one by one, with the place of each in the page the loader looks at."""
        progress, mark = self._progress, self._mark + 1
        seeds = self._setup.seed_by == "sample"
        for position, index in enumerate(indices):
            progress[mark] = position
            if progress[STOP]:
                raise Stopped
            if seeds:
                randomness.seed_all(sample_seed(self._setup.base_seed, self._epoch, self._first + position))
            yield index

    def _say(self, task: int, place: int) -> None:
        self._progress[self._mark] = task
        self._progress[self._mark + 1] = place


def sample_seed(base_seed: int, epoch: int, number: int) -> int:
    """The seed of the ``number``-th sample of an epoch, whoever reads it (splitmix64's finaliser)."""
    value = (base_seed + 0x9E3779B97F4A7C15 * (number + 1) + 0xD1B54A32D192ED03 * epoch) & (2**64 - 1)
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
    return (value ^ (value >> 31)) >> 1


#: The slot of the batch being collated in this process.
_open_arena: Arena | None = None


def _slot_memory(num_bytes: int) -> Any:
    arena = _open_arena
    return arena.out if arena is not None and arena.is_open and arena.gives_memory else None


def _portable(error: ExceptionWrapper) -> bytes:
    """An exception as bytes the loader can read, whatever its class is made of."""
    try:
        data = pickle.dumps(error)
        pickle.loads(data)  # nosec B301
    except Exception:
        error.exc_msg = f"{error.exc_msg}\n({error.exc_type!r} itself could not be sent)"
        error.exc_type = RuntimeError
        data = pickle.dumps(error)
    return data
