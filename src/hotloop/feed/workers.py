"""The workers of one iterator: started, listened to, found dead, ended."""

from __future__ import annotations

import errno
import os
import select
import signal
import time
from dataclasses import dataclass
from typing import Any, Final

from torch.utils.data import _utils as torch_utils

from hotloop import cgroups
from hotloop.feed.channel import Life, Link, connect
from hotloop.feed.errors import WorkerError
from hotloop.feed.ring import COLLATING, FETCHING, MOST_WORKERS, STARTING, STOP, Ring, Slot
from hotloop.feed.worker import Reply, Setup, run

#: How often a silent worker is looked at, should its pipe not have ended.
_LOOK_EVERY_S: Final = 1.0
#: How often a task too large for its pipe is pushed on.
_SEND_EVERY_S: Final = 0.001
#: How long workers get to end by themselves (torch's own figure).
_END_WITHIN_S: Final = 5.0


@dataclass(eq=False, slots=True)
class Task:
    """One batch on its way: which worker makes it, in which slot, and what came of it."""

    number: int
    worker: Member
    slot: Slot
    index: Any
    reply: Reply | None = None


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
        self._oom_kills = cgroups.oom_kills() or 0  # where it does not say

    def _arrived(self, member: Member, reply: Reply) -> None:
        raise NotImplementedError

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
            raise not_started(number, error) from error
        self._workers.append(member)
        self._by_descriptor[member.link.replies] = member
        self._poll.register(member.link.replies, select.POLLIN)
        self._ring.limit += self._prefetch_factor
        return member

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
            member = self._by_descriptor[descriptor]
            for message in member.link.receive():
                self._arrived(member, Reply(*message))
            if member.link.ended:
                self._fail(member)
        if events:
            return
        for member in self._workers:
            if not member.process.is_alive():
                self._fail(member)
        if deadline is not None and time.monotonic() >= deadline:
            self._hung = True
            task = self._task_info[min(self._task_info)]
            raise timed_out(self._timeout, task.worker, self._task_info, self._ring.progress)

    def _fail(self, member: Member) -> None:
        self._failure = explain(member, self._task_info, self._ring.progress, self._oom_kills)
        self._shutdown_workers()
        raise self._failure

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


# Why a worker is gone


def explain(member: Any, tasks: dict[int, Any], progress: Any, oom_kills: int) -> WorkerError:
    """The error for a worker whose process is gone. ``oom_kills``: how many there were before."""
    member.process.join(5.0)
    code = member.process.exitcode
    hint = None
    if code is None:
        cause = "closed its pipe"
    elif code >= 0:
        cause = f"exited unexpectedly with code {code}"
        hint = "the dataset, collate_fn or worker_init_fn ended the process (os._exit, sys.exit)"
    else:
        cause = f"was killed by {_name(-code)}"
        if code == -signal.SIGKILL:
            if (cgroups.oom_kills() or 0) > oom_kills:
                cause += ": the kernel's out-of-memory killer of this control group"
                hint = "lower num_workers, prefetch_factor or batch_size, or give the job more memory"
            else:
                hint = "somebody sent it, or the machine ran out of memory (see dmesg)"
        elif code in (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT):
            hint = "native code in the dataset crashed; run with num_workers=0 and python -X faulthandler"
    doing = place_of(member.number, tasks, progress)
    error = WorkerError(
        f"DataLoader worker {member.number} (pid {member.pid}) {cause} while {doing}", hint=hint
    )
    task = tasks.get(progress[1 + 2 * member.number])
    error.index = None if task is None or task.reply is not None else task.index
    return error


def timed_out(timeout: float, member: Any, tasks: dict[int, Any], progress: Any) -> WorkerError:
    """The error for a batch that did not come from ``member`` within ``timeout`` seconds."""
    doing = place_of(member.number, tasks, progress)
    return WorkerError(
        f"DataLoader timed out after {timeout} seconds: "
        f"worker {member.number} (pid {member.pid}) was {doing}",
        hint="raise timeout if that is slow by nature; py-spy dump --pid shows where a worker stands",
    )


def not_started(number: int, error: OSError) -> WorkerError:
    """The error for a worker that could not be started."""
    hint = None
    if error.errno in (errno.EMFILE, errno.ENFILE):
        hint = "a worker takes four descriptors: raise the limit (ulimit -n) or lower num_workers"
    elif error.errno in (errno.EAGAIN, errno.ENOMEM):
        hint = (
            "raise the limit on processes (ulimit -u, the cgroup's pids.max) or memory, or lower num_workers"
        )
    return WorkerError(f"worker {number} could not be started: {error}", hint=hint)


def place_of(worker: int, tasks: dict[int, Any], progress: Any) -> str:
    """What a worker was busy with, in words."""
    task, place = progress[1 + 2 * worker], progress[2 + 2 * worker]
    if place == STARTING:
        return "starting (worker_init_fn or unpickling the dataset)"
    if place == COLLATING:
        return f"collating batch {task}"
    if place == FETCHING:
        return f"fetching batch {task}{_samples(tasks.get(task))}"
    if place >= 0:
        try:
            return f"reading sample {tasks[task].index[place]!r} (number {place} of batch {task})"
        except (KeyError, IndexError, TypeError):
            return f"reading sample number {place} of batch {task}"
    return "waiting for work"


def _samples(task: Any) -> str:
    if task is None:
        return ""
    text = repr(task.index)
    return f" (samples {text if len(text) <= 200 else text[:200] + '...'})"


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
