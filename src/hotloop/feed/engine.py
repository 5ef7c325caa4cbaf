"""The iterator over worker processes: hands out tasks, takes in batches, keeps the order, finds the dead."""

from __future__ import annotations

import os
import pickle
import select
import time
import zlib
from collections import deque
from typing import Any, Final

import torch
from torch.utils.data import _utils as torch_utils
from torch.utils.data.dataloader import _BaseDataLoaderIter

from hotloop.feed import death
from hotloop.feed.channel import Life, Link, connect
from hotloop.feed.errors import WorkerError
from hotloop.feed.packing import unpack
from hotloop.feed.reading import Reading, plan_of
from hotloop.feed.ring import SPARE_SLOTS, STOP, Ring, Slot
from hotloop.feed.worker import BATCH, EPOCH, EXHAUSTED, STATES, TASK, Reply, Setup, run

#: How often it is looked whether a worker that says nothing still lives, should its pipe not have told.
_LOOK_EVERY_S: Final = 1.0
#: How long workers get to end by themselves (torch's own figure).
_END_WITHIN_S: Final = 5.0
#: Workers a ring has room for beyond those it began with: ``num_workers="auto"`` adds some.
_ROOM: Final = 256


class Task:
    """One batch on its way: which worker makes it, in which slot, and what came of it."""

    __slots__ = ("index", "number", "reply", "slot", "worker")

    def __init__(self, number: int, worker: Member, slot: Slot, index: Any) -> None:
        self.number = number
        self.worker = worker
        self.slot = slot
        self.index = index
        self.reply: Reply | None = None


class Member:
    """A worker as the loader sees it. ``active``: still given tasks in this epoch."""

    __slots__ = ("active", "link", "num_tasks", "number", "process")

    def __init__(self, number: int, process: Any, link: Link) -> None:
        self.number = number
        self.process = process
        self.link = link
        self.active = True
        self.num_tasks = 0

    @property
    def pid(self) -> int:
        """Its process."""
        return int(self.process.pid)


class Engine(_BaseDataLoaderIter):  # type: ignore[misc]
    """Iterates once (again and again with ``persistent_workers``) over a loader's batches.

    Batches come in the order, from the workers, and with the draws from the random generators of torch's own
    iterator.
    """

    def __init__(self, loader: Any) -> None:
        self._shutdown = True  # until there is something to shut down
        self._pid = os.getpid()
        super().__init__(loader)
        self._loader_copy = bool(loader.copy)
        self._prefetch_factor = int(loader.prefetch_factor)
        self._in_order = bool(getattr(loader, "in_order", True))
        self._failure: WorkerError | None = None
        self._hung = False
        self._poll = select.poll()
        self._by_descriptor: dict[int, Member] = {}
        self._workers: list[Member] = []
        self._ring = Ring(max_workers=self._num_workers + _ROOM)
        self._life = Life()
        self._shutdown = False
        self._setup = Setup(
            reading=Reading(
                kind=self._dataset_kind,
                dataset=self._dataset,
                auto_collation=self._auto_collation,
                collate_fn=self._collate_fn,
                drop_last=self._drop_last,
                singly=loader.seed_by == "sample",
            ),
            file=self._ring.file,
            progress_bytes=self._ring.progress_bytes,
            base_seed=self._base_seed,
            num_workers=self._num_workers,
            init_fn=loader.worker_init_fn,
            seed_by=loader.seed_by,
            depth=self._prefetch_factor * self._num_workers + 1,
            states={},
        )
        self._context = loader.multiprocessing_context or torch.multiprocessing
        self._oom_kills = death.oom_kills()
        for _ in range(self._num_workers):
            self.add_worker()
        self._reset(loader, first_iter=True)

    # -- workers ---------------------------------------------------------------------------------------------

    def add_worker(self) -> Member:
        """Start one more worker.

        Raises:
            WorkerError: the system refuses another process or another pipe.
        """
        number = len(self._workers)
        try:
            link, ends = connect(self._life.read)
        except OSError as error:
            self._shutdown_workers()
            raise death.not_started(number, error) from error
        process = self._context.Process(target=run, args=(self._setup, ends, number), daemon=True)
        try:
            process.start()
        except OSError as error:
            link.close()
            self._shutdown_workers()
            raise death.not_started(number, error) from error
        except BaseException:
            link.close()
            self._shutdown_workers()
            raise
        finally:
            ends.close()
        member = Member(number, process, link)
        self._workers.append(member)
        self._by_descriptor[link.replies] = member
        self._poll.register(link.replies, select.POLLIN)
        self._ring.limit += self._prefetch_factor + (SPARE_SLOTS if number == 0 else 0)
        return member

    # -- an epoch --------------------------------------------------------------------------------------------

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        if not first_iter:
            self._drain()
        super()._reset(loader, first_iter)
        self._send_idx = 0  # the names of torch's iterator: hotloop's observers read them
        self._rcvd_idx = 0
        self._num_samples = 0
        self._checksum = 0
        self._task_info: dict[int, Task] = {}
        self._tasks_outstanding = 0
        self._ready: deque[Task] = deque()  # in_order=False: in the order they came
        self._next_worker = 0
        self._plan()
        for member in self._workers:
            member.active, member.num_tasks = True, 0
            if not first_iter:
                member.link.send((EPOCH,))
        for _ in range(self._prefetch_factor * self._num_workers):
            self._dispatch()

    def _plan(self) -> None:
        plan = plan_of(self._dataset)
        if plan is not None:
            pass

    def _drain(self) -> None:
        """Take in, and drop, what is still being made (a loop was left early): it is all made, as in torch."""
        while self._tasks_outstanding:
            self._wait(None)
        for task in self._task_info.values():
            self._free(task)
        self._task_info.clear()

    def _dispatch(self) -> None:
        """Give the next batch of the epoch to a worker, if there is one."""
        try:
            index = self._next_index()
        except StopIteration:
            return
        member = self._choose()
        if member is None:
            return
        slot = self._ring.take(member.number)
        assert slot is not None, "more tasks than slots"
        data = pickle.dumps(index, pickle.HIGHEST_PROTOCOL)
        number = self._send_idx
        self._task_info[number] = Task(number, member, slot, index)
        self._send_idx += 1
        self._tasks_outstanding += 1
        member.num_tasks += 1
        member.link.send((TASK, number, slot.number, slot.capacity, self._num_samples, data))
        if self._auto_collation:
            self._num_samples += len(index)
        else:
            self._num_samples += 1
        self._checksum = zlib.crc32(data, self._checksum)

    def _choose(self) -> Member | None:
        """The worker after the last one; with ``in_order=False`` the next that has room."""
        workers = self._workers
        limit = self._prefetch_factor * len(workers)
        for _ in workers:
            member = workers[self._next_worker]
            self._next_worker = (self._next_worker + 1) % len(workers)
            if member.active and (
                self._in_order or member.num_tasks < limit // sum(one.active for one in workers)
            ):
                return member
        return None

    def _next_data(self) -> Any:
        if self._failure is not None:
            raise WorkerError(self._failure.message, hint=self._failure.hint)
        deadline = time.monotonic() + self._timeout if self._timeout > 0 else None
        while True:
            task = self._next_task()
            if task is not None:
                return self._hand_out(task)
            self._wait(deadline)

    def _next_task(self) -> Task | None:
        """The task whose batch is handed out next, None if none has arrived."""
        if not self._in_order and self._ready:
            task = self._ready.popleft()
            del self._task_info[task.number]
            return task
        while self._rcvd_idx < self._send_idx:
            task = self._task_info.get(self._rcvd_idx)
            if task is not None:
                if task.reply is None:
                    if task.worker.active or task.worker.num_tasks:
                        return None
                elif self._in_order:
                    del self._task_info[self._rcvd_idx]
                    self._rcvd_idx += 1
                    return task
                else:
                    return None
            self._rcvd_idx += 1
        self._end_epoch()
        raise StopIteration

    def _end_epoch(self) -> None:
        if not self._persistent_workers:
            self._shutdown_workers()
        end = getattr(self._dataset, "epoch_end", None)
        if callable(end):
            end()

    def _hand_out(self, task: Task) -> Any:
        reply, slot = task.reply, task.slot
        assert reply is not None
        task.worker.num_tasks -= 1
        if reply.kind != BATCH:
            self._free(task)
            self._dispatch()
            pickle.loads(reply.meta).reraise()  # type: ignore[arg-type]
        if not reply.used:
            self._free(task)
            self._dispatch()
            return unpack(reply.meta, reply.spans, None)  # type: ignore[arg-type]
        held = self._ring.num_taken - len(self._task_info)  # this one, and those the user has not let go
        if self._loader_copy or held > SPARE_SLOTS:
            memory = self._ring.view(slot)[: reply.used].copy()
            self._free(task)
            self._dispatch()
        else:
            self._dispatch()
            release = self._ring.discard if reply.kept else self._ring.free
            memory = self._ring.lease(slot, task.number, release)
        meta = reply.meta
        if not isinstance(meta, bytes):
            meta = memory[meta[0] : meta[0] + meta[1]].tobytes()
        return unpack(meta, reply.spans, memory)

    def _free(self, task: Task) -> None:
        kept = task.reply is not None and task.reply.kept
        (self._ring.discard if kept else self._ring.free)(task.slot)

    # -- replies ---------------------------------------------------------------------------------------------

    def _wait(self, deadline: float | None) -> None:
        """Take in what has arrived, waiting for something to arrive.

        Raises:
            WorkerError: a worker is dead, or nothing came in time.
        """
        timeout = _LOOK_EVERY_S
        if deadline is not None:
            timeout = min(timeout, max(0.0, deadline - time.monotonic()))
        events = self._poll.poll(timeout * 1000)
        for descriptor, _ in events:
            self._take_in(self._by_descriptor[descriptor])
        if events:
            return
        for member in self._workers:
            member.link.flush()
            if not member.process.is_alive():
                self._fail(member)
        if deadline is not None and time.monotonic() >= deadline:
            self._hung = True
            task = self._task_info[min(self._task_info)]
            raise death.timed_out(self._timeout, task, self._ring.progress)

    def _take_in(self, member: Member) -> None:
        for message in member.link.receive():
            if message[0] == STATES:
                continue
            self._arrived(member, Reply(*message))
        if member.link.ended:
            self._fail(member)

    def _arrived(self, member: Member, reply: Reply) -> None:
        task = self._task_info[reply.task]
        task.reply = reply
        task.slot.capacity = reply.capacity
        self._tasks_outstanding -= 1
        if reply.kind == EXHAUSTED:
            member.active = False
            member.num_tasks -= 1
            del self._task_info[reply.task]
            self._free(task)
            self._dispatch()
        elif not self._in_order:
            self._ready.append(task)

    def _fail(self, member: Member) -> None:
        self._failure = death.explain(member, self._task_info.values(), self._ring.progress, self._oom_kills)
        self._shutdown_workers()
        raise self._failure

    # -- the end ---------------------------------------------------------------------------------------------

    def _shutdown_workers(self) -> None:
        """End the workers; what they were making is lost. Batches handed out stay valid."""
        if self._shutdown or self._pid != os.getpid() or torch_utils.python_exit_status:
            return
        self._shutdown = True
        self._ring.progress[STOP] = 1
        for member in self._workers:
            member.link.close()
        deadline = time.monotonic() + (0.0 if self._hung else _END_WITHIN_S)
        for end in ("join", "terminate", "kill"):
            for member in self._workers:
                if end != "join" and member.process.is_alive():
                    getattr(member.process, end)()
                    deadline = time.monotonic() + 1.0
                member.process.join(max(0.0, deadline - time.monotonic()))
        for member in self._workers:
            if not member.process.is_alive():
                member.process.close()
        self._life.close()
        self._ring.file.close()

    def __del__(self) -> None:
        self._shutdown_workers()
