"""The workers of one iterator: started, listened to, found dead, ended."""

from __future__ import annotations

import os
import select
import time
from typing import Any, Final

from torch.utils.data import _utils as torch_utils

from hotloop.feed import death
from hotloop.feed.channel import Life, Link, connect
from hotloop.feed.errors import WorkerError
from hotloop.feed.ring import MOST_WORKERS, STARTING, STOP, Ring, Slot
from hotloop.feed.worker import Reply, Setup, run

#: How often a silent worker is looked at, should its pipe not have ended.
_LOOK_EVERY_S: Final = 1.0
#: How often a task too large for its pipe is pushed on.
_SEND_EVERY_S: Final = 0.001
#: How long workers get to end by themselves (torch's own figure).
_END_WITHIN_S: Final = 5.0


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
    """A worker process and the pipes to it.

    ``active``: it is given tasks in this epoch. ``num_to_make``: those it has; ``num_tasks``: also those it
    made that were not handed out yet.
    """

    __slots__ = ("__weakref__", "active", "link", "num_tasks", "num_to_make", "number", "pid", "process")

    def __init__(self, number: int, process: Any, link: Link) -> None:
        self.number = number
        self.process = process
        self.pid = int(process.pid)
        self.link = link
        self.active = True
        self.num_tasks = 0
        self.num_to_make = 0


class Arrivals:
    """The replies that wait in the pipes, for whoever asks how far ahead the workers are."""

    def __init__(self, poll: Any) -> None:
        self._poll = poll

    def qsize(self) -> int:
        """How many workers have at least one reply there."""
        return len(self._poll.poll(0))


def _started(context: Any, setup: Setup, number: int, life: Life) -> Member:
    """A worker process, started.

    Raises:
        OSError: the system refuses another process, pipe or more memory.
    """
    link, ends = connect(life.read)
    try:
        process = context.Process(target=run, args=(setup, ends, number), daemon=True)
        process.start()
    except BaseException:
        link.close()
        raise
    finally:
        ends.close()
    return Member(number, process, link)


class Workers:
    """Comes among the bases of an iterator, which gives out tasks and takes what ``_arrived``."""

    _context: Any
    _failure: WorkerError | None
    _hung: bool
    _in_order: bool
    _is_draining: bool
    _num_workers: int
    _pid: int
    _prefetch_factor: int
    _rcvd_idx: int
    _ring: Ring
    _setup: Setup
    _shutdown: bool
    _task_info: dict[int, Task]
    _timeout: float

    def _open(self) -> None:
        self._workers: list[Member] = []
        self._poll = select.poll()
        self._by_descriptor: dict[int, Member] = {}
        self._life = Life()
        self._oom_kills = death.count_oom_kills()

    def _arrived(self, member: Member, reply: Reply) -> None:
        raise NotImplementedError

    def _start_workers(self) -> None:
        for _ in range(self._num_workers):
            self.add_worker()

    def add_worker(self) -> Member:
        """Start one more worker.

        Raises:
            WorkerError: the system refuses another process, pipe, or memory.
        """
        number = len(self._workers)
        if number >= MOST_WORKERS:
            raise WorkerError(f"more than {MOST_WORKERS} workers")
        self._ring.progress[2 + 2 * number] = STARTING
        try:
            member = _started(self._context, self._setup, number, self._life)
        except OSError as error:
            raise death.not_started(number, error) from error
        self._join(member)
        return member

    def _join(self, member: Member) -> None:
        self._workers.append(member)
        self._by_descriptor[member.link.replies] = member
        self._poll.register(member.link.replies, select.POLLIN)
        self._ring.limit += self._prefetch_factor

    def _wait(self, deadline: float | None) -> None:
        """Take in what has arrived, waiting for something to arrive.

        Raises:
            WorkerError: a worker is dead, or nothing came in time.
        """
        timeout = _LOOK_EVERY_S
        if sum(member.link.flush() is False for member in self._workers):
            timeout = _SEND_EVERY_S
        if deadline is not None:
            timeout = min(timeout, max(0.0, deadline - time.monotonic()))
        # What comes out of turn wakes nobody: it is taken in with the rest.
        turn = self._task_info.get(self._rcvd_idx) if self._in_order and not self._is_draining else None
        if turn is not None:
            turn.worker.link.watch.wait(timeout)
            timeout = 0
        events = self._poll.poll(timeout * 1000)
        for descriptor, _ in events:
            self._take_in(self._by_descriptor[descriptor])
        if events:
            return
        for member in self._workers:
            if not member.process.is_alive():
                self._fail(member)
        if deadline is not None and time.monotonic() >= deadline:
            self._hung = True
            task = self._task_info[min(self._task_info)]
            raise death.timed_out(self._timeout, task.worker, self._task_info, self._ring.progress)

    def _take_in(self, member: Member) -> None:
        for message in member.link.receive():
            self._arrived(member, Reply(*message))
        if member.link.ended:
            self._fail(member)

    def _fail(self, member: Member) -> None:
        self._failure = death.explain(member, self._task_info.values(), self._ring.progress, self._oom_kills)
        self._shutdown_workers()
        raise self._failure

    @property
    def has_ended(self) -> bool:
        """Whether its workers are gone."""
        return self._shutdown

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
                member.process.close()  # its descriptors: somebody may keep this iterator
        self._life.close()
        self._ring.file.close()  # batches that are held keep their windows, not the descriptor

    def stop(self) -> None:
        """End the workers at once, whatever they are at."""
        self._hung = True
        self._shutdown_workers()
