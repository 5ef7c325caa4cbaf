"""The iterator over workers: hands out tasks, takes in batches, keeps the order, finds the dead."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import time
from collections import deque
from typing import Any, Final

import torch
from torch.utils.data import _utils as torch_utils
from torch.utils.data import dataloader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from hotloop.feed.errors import WorkerError
from hotloop.feed.iterating import Iterating
from hotloop.feed.memory import Mapping
from hotloop.feed.packing import unpack
from hotloop.feed.ring import SPARE_SLOTS, Ring
from hotloop.feed.worker import BATCH, EPOCH, EXHAUSTED, TASK, Reply, Setup
from hotloop.feed.workers import Arrivals, Member, Task, Workers


class PinnedMapping(Mapping):
    """A window whose pages are locked for CUDA: tensors on it are ``is_pinned()``, copies need not wait.

    Where CUDA refuses (``RLIMIT_MEMLOCK``, no more pages), ``is_pinned`` stays false and the window is plain.
    """

    is_pinned = False

    def __init__(self, descriptor: int, num_bytes: int, *, offset: int = 0, writable: bool = True) -> None:
        super().__init__(descriptor, num_bytes, offset=offset, writable=writable)
        self._owner = os.getpid()
        self.is_pinned = int(torch.cuda.cudart().cudaHostRegister(self.address, num_bytes, 0)) == 0
        if not self.is_pinned:
            # CUDA remembers what it refused until somebody asks: let it not be blamed on the next kernel.
            with contextlib.suppress(RuntimeError):
                torch.zeros(1, device="cuda")

    def __del__(self) -> None:
        if self.is_pinned and self._owner == os.getpid() and not sys.is_finalizing():
            self.is_pinned = False
            torch.cuda.synchronize()  # a copy may still be reading; windows are replaced rarely
            torch.cuda.cudart().cudaHostUnregister(self.address)
        super().__del__()


def last_copy() -> Any:
    """An event that passes when the current stream's copies so far are done.

    The stream is the one that is current where a batch's last reference goes. Whoever copies on another
    stream holds the batch until its copy is done (``DevicePrefetcher`` does).
    """
    event = torch.cuda.Event()
    event.record()
    return event


#: Whoever put something else in its place wants to see every batch.
_TORCHS: Final = vars(dataloader)
#: Between the seeds of an epoch's workers and those of the workers that go on with it.
_STRIDE: Final = 1_000_003


class Engine(Workers, Iterating, _BaseDataLoaderIter):  # type: ignore[misc]
    """Iterates once (again and again with ``persistent_workers``) over a loader's batches.

    Order, the worker a batch comes from, and draws from random generators are those of torch's own iterator.
    Attributes that hotloop's observers read have the names they have there.
    """

    def __init__(self, loader: Any, resumed: dict[str, Any] | None = None) -> None:
        self._shutdown = True  # until there is something to shut down
        self._pid = os.getpid()
        super().__init__(loader, resumed)

    def _begin(self, loader: Any, resumed: dict[str, Any] | None) -> None:
        self._copies = bool(loader.copy)
        if not loader.prefetch_factor:
            raise ValueError(f"prefetch_factor must be at least 1 with workers, not {loader.prefetch_factor}")
        self._prefetch_factor = int(loader.prefetch_factor)
        self._in_order = bool(getattr(loader, "in_order", True))
        self._failure: WorkerError | None = None
        self._hung = False
        # Slots can be pinned for the accelerator in use; others get torch's own pinned copies.
        pins = self._pin_memory and self._pin_memory_device in ("cuda", None) and torch.cuda.is_available()
        self._ring = Ring(
            map_slot=PinnedMapping if pins else Mapping,
            last_copy=last_copy if pins else None,
            debug=loader.debug,
        )
        self._open()
        self._shutdown = False
        self._data_queue: Any = Arrivals(self._poll)
        reading, num_given = self._reading(loader), resumed["num_given"] if resumed else 0
        repeats = reading.singly or reading.is_iterable
        self._setup = Setup(
            reading=reading,
            file=self._ring.file,
            # Workers that go on with an epoch draw other numbers than those that began it.
            base_seed=self._base_seed + (0 if repeats else _STRIDE * num_given),
            num_workers=self._num_workers,
            init_fn=loader.worker_init_fn,
            seed_by=loader.seed_by,
            epoch=self._epoch,
        )
        self._context = loader.multiprocessing_context or torch.multiprocessing
        self._ring.limit = SPARE_SLOTS
        try:
            for _ in range(self._num_workers):
                self.add_worker()
        except BaseException:
            self._shutdown_workers()
            raise
        self._reset(loader, first_iter=True, resumed=resumed)

    # -- an epoch --------------------------------------------------------------------------------------------

    def _reset(self, loader: Any, first_iter: bool = False, resumed: dict[str, Any] | None = None) -> None:
        if not first_iter:
            self._drain()
            self._epoch += 1
            for member in self._workers:
                member.link.send((EPOCH,))
        self._begin_epoch(loader)
        _BaseDataLoaderIter._reset(self, loader, first_iter)
        self._send_idx = 0
        self._rcvd_idx = 0
        self._task_info: dict[int, Task] = {}
        self._tasks_outstanding = 0
        self._ready: deque[Task] = deque()  # in_order=False: in the order they came
        self._next_worker = 0
        self._is_draining = False
        for member in self._workers:
            member.active, member.num_tasks = True, 0
        if resumed and not self._dataset_kind:
            self._skip(resumed)
        while self._tasks_outstanding < self._prefetch_factor * self._num_workers and self._dispatch():
            pass
        if resumed and self._dataset_kind:
            self._skip(resumed)

    def _drain(self) -> None:
        """Take in and drop what is being made (a loop was left early): it is all made, as in torch."""
        self._is_draining = True
        while self._tasks_outstanding:
            self._wait(None)
        for task in self._task_info.values():
            self._free(task)
        self._task_info.clear()

    def _dispatch(self) -> bool:
        """Give the next batch of the epoch to a worker; false if there is none."""
        try:
            index = self._draw()
        except StopIteration:
            return False
        member = self._choose()
        if member is None:
            return False
        slot = self._ring.take(member.number)
        number = self._send_idx
        data, first = pickle.dumps(index, pickle.HIGHEST_PROTOCOL), self._count(index)
        self._task_info[number] = Task(number, member, slot, index)
        self._tasks_outstanding += 1
        member.num_tasks += 1
        member.num_to_make += 1
        member.link.send((TASK, number, slot.number, slot.capacity, first, data))
        return True

    def _count(self, index: Any) -> int:
        self._send_idx += 1
        return super()._count(index)

    def _choose(self) -> Member | None:
        """The worker after the last one; with ``in_order=False`` the next that has room."""
        workers = self._workers
        for _ in workers:
            member: Member = workers[self._next_worker]
            self._next_worker = (self._next_worker + 1) % len(workers)
            if member.active and (self._in_order or self._has_room(member)):
                return member
        return None

    def _has_room(self, member: Member) -> bool:
        num_active: int = sum(one.active for one in self._workers)
        return bool(member.num_tasks < self._prefetch_factor * self._num_workers // num_active)

    def __next__(self) -> Any:
        """The next batch: as torch's, whose label for profilers costs more than all else here."""
        own = getattr(_BaseDataLoaderIter.__next__, "__globals__", None) is _TORCHS
        if not own or self._dataset_kind or torch.autograd._profiler_enabled():
            return super().__next__()
        batch = self._next_data()
        self._num_yielded += 1
        return batch

    def _next_data(self) -> Any:
        if self._failure is not None:
            raise WorkerError(self._failure.message, hint=self._failure.hint)
        deadline = time.monotonic() + self._timeout if self._timeout > 0 else None
        while (task := self._next_task()) is None:
            self._wait(deadline)
        return self._hand_out(task)

    def _next_task(self) -> Task | None:
        """The task whose batch is handed out next, None if it has not arrived.

        Raises:
            StopIteration: there is none.
        """
        if self._ready:
            task = self._ready.popleft()
            del self._task_info[task.number]
            return task
        while self._rcvd_idx < self._send_idx:
            waiting = self._task_info.get(self._rcvd_idx)
            if waiting is not None:
                if waiting.reply is None or not self._in_order:
                    return None
                del self._task_info[self._rcvd_idx]
                self._rcvd_idx += 1
                return waiting
            self._rcvd_idx += 1  # handed out, or its worker had no more
        self._end_epoch()
        raise StopIteration

    def _end_epoch(self) -> None:
        super()._end_epoch()
        if not self._persistent_workers:
            self._shutdown_workers()

    def _hand_out(self, task: Task) -> Any:
        reply, slot = task.reply, task.slot
        assert reply is not None
        task.worker.num_tasks -= 1
        self._position.num_given += 1
        meta = reply.meta
        if reply.kind != BATCH or not reply.used:
            assert isinstance(meta, bytes)
            self._free(task)
            self._dispatch()
            if reply.kind != BATCH:
                pickle.loads(meta).reraise()  # nosec B301
            return self._pinned(unpack(meta, reply.spans, None))
        held = self._ring.num_taken - len(self._task_info)  # this one, and what the user has not let go
        if self._copies or held > SPARE_SLOTS:
            memory = self._ring.view(slot)[: reply.used].copy()
            self._free(task)
            self._dispatch()
        else:
            self._dispatch()
            release = self._ring.discard if reply.kept else self._ring.free
            memory = self._ring.lease(slot, release)
        if not isinstance(meta, bytes):
            meta = memory[meta[0] : meta[0] + meta[1]].tobytes()
        return self._pinned(unpack(meta, reply.spans, memory))

    def _pinned(self, batch: Any) -> Any:
        """As torch's pinning thread would: what lies in a pinned slot is pinned and stays where it is."""
        if not self._pin_memory:
            return batch
        return torch_utils.pin_memory.pin_memory(batch, self._pin_memory_device)

    def _arrived(self, member: Member, reply: Reply) -> None:
        task = self._task_info[reply.task]
        task.reply = reply
        task.slot.capacity = reply.capacity
        self._tasks_outstanding -= 1
        member.num_to_make -= 1
        if reply.kind == EXHAUSTED:
            member.active = False
            member.num_tasks -= 1
            del self._task_info[reply.task]
            self._free(task)
            if not self._is_draining:
                self._dispatch()
        elif not self._in_order:
            self._ready.append(task)

    def _free(self, task: Task) -> None:
        kept = task.reply is not None and task.reply.kept
        (self._ring.discard if kept else self._ring.free)(task.slot)

    def __del__(self) -> None:
        if self._shutdown or self._pid != os.getpid() or torch_utils.python_exit_status:
            return
        self._shutdown_workers()
