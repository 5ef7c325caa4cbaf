"""Batches made by threads of the training process: for work that leaves the interpreter free.

A thread is a member of the engine as a worker process is, but what it makes is not copied between processes.
A dataset that holds the interpreter (pure Python) would hold up training: :class:`GilShare` tells how much.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import queue
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter, perf_counter_ns, sleep, thread_time_ns
from typing import Any, Final

import torch
from torch._utils import ExceptionWrapper

from hotloop.feed.channel import Watch
from hotloop.feed.engine import Engine
from hotloop.feed.inline import LocalReader
from hotloop.feed.member import Member
from hotloop.feed.reading import Reading
from hotloop.feed.ring import FETCHING, WAITING
from hotloop.feed.worker import EPOCH, EXHAUSTED, FAILED, HERE, REPLAY, TASK, Reply, _portable

#: A thread that gets the interpreter back this much too late was kept from it (the switch interval is 5 ms).
_TICK_S: Final = 2e-4
_LATE_S: Final = 1e-3
#: Batches of one thread that may wait or be held before new ones get fresh memory.
SPARE: Final = 16
#: Watched for this long, the answer is known.
_ENOUGH_S: Final = 0.05
_END_WITHIN_S: Final = 5.0


@dataclass
class GilShare:
    """How much of the time in which batches were made another thread could not run."""

    watched_s: float = 0.0
    late_s: float = 0.0

    @property
    def is_known(self) -> bool:
        """Watched for long enough, or nothing to find out: this Python has no such lock."""
        return self.watched_s >= _ENOUGH_S or not gil_enabled()

    @property
    def ratio(self) -> float:
        """From 0 (free) to 1 (held all the time); 0 while nothing was seen."""
        return self.late_s / self.watched_s if self.watched_s and gil_enabled() else 0.0

    def watch(self, is_over: Callable[[], bool]) -> None:
        """While a batch is being made and this thread would only wait: how late does it wake?"""
        while not is_over() and not self.is_known:
            began, delayed_s = perf_counter(), _run_delay_s()
            sleep(_TICK_S)
            delayed_s = _run_delay_s() - delayed_s  # no core was free: that is no lock
            took_s = perf_counter() - began - delayed_s
            self.watched_s += took_s
            if took_s - _TICK_S > _LATE_S:
                self.late_s += took_s - _TICK_S


def _run_delay_s() -> float:
    """Seconds this thread has waited for a core, ever; 0 where the kernel does not count."""
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:  # noqa: PTH123 - a few microseconds
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def gil_enabled() -> bool:
    """Whether this Python runs one thread at a time."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def refuse(loader: Any) -> None:
    """Say what threads cannot do, before they would do it wrongly.

    Raises:
        ValueError: the loader's arguments need processes.
    """
    if loader.seed_by == "sample":
        raise ValueError(
            "worker_method='thread' cannot seed by sample: the generators belong to the whole process, "
            "training included; take worker_method='process'"
        )
    if loader.worker_init_fn is not None:
        raise ValueError("worker_method='thread' starts no worker process for worker_init_fn to run in")
    if loader.num_workers > 1 and isinstance(loader.dataset, torch.utils.data.IterableDataset):
        raise ValueError("an IterableDataset has one position: with worker_method='thread', num_workers=1")


class _ThreadLink:
    """To and from a thread, with the methods of the pipes to a process; a byte a reply wakes who polls."""

    def __init__(self) -> None:
        self.replies, self._bell = os.pipe()
        self.watch = Watch(self.replies, spin_s=0.0)  # awake, it would hold the interpreter
        self.ended = False
        self.tasks: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
        self._made: deque[Reply] = deque()
        self._lock = threading.Lock()

    def send(self, message: tuple[Any, ...]) -> None:
        """A message the thread will read when it comes to it."""
        self.tasks.put(message)

    def reply(self, reply: Reply) -> None:
        """In the thread: a batch is made."""
        with self._lock:  # after close() the descriptor's number may be somebody else's
            if not self.ended:
                self._made.append(reply)
                os.write(self._bell, b".")

    def receive(self) -> list[Reply]:
        """What was made; call it when there is something to read."""
        return [self._made.popleft() for _ in os.read(self.replies, 1 << 12)]

    def flush(self) -> bool:
        """Nothing is ever left to send."""
        return True

    def close(self) -> None:
        """Let the thread end after what it is at."""
        with self._lock:
            if self.ended:
                return
            self.ended = True
            os.close(self.replies)
            os.close(self._bell)
        self.tasks.put(None)


class ThreadProcess:
    """A thread with what the engine asks of a process."""

    exitcode = None

    def __init__(self, thread: threading.Thread) -> None:
        self._thread = thread
        self.pid = os.getpid()

    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._thread.is_alive()

    def join(self, timeout: float | None = None) -> None:
        """Wait for it to end."""
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def terminate(self) -> None:
        """A thread cannot be ended from outside; it ends after its batch, and with the process."""

    kill = close = terminate


def start_thread(reading: Reading, number: int, progress: Any, *, copy: bool, debug: bool) -> Member:
    """A member of the engine that makes batches in a thread of this process."""
    link = _ThreadLink()
    thread = started(_serve, (reading, link, number, progress, copy, debug), number, link.tasks)
    return Member(number, ThreadProcess(thread), link)  # type: ignore[arg-type]  # the same methods


def started(
    target: Callable[..., None], args: tuple[Any, ...], number: int, tasks: queue.SimpleQueue[Any]
) -> threading.Thread:
    """A thread that makes batches until it finds None among its tasks, or the interpreter ends."""
    thread = threading.Thread(target=target, args=args, name=f"feed-{number}", daemon=True)
    _making[thread] = tasks
    thread.start()
    return thread


_making: Final[weakref.WeakKeyDictionary[threading.Thread, queue.SimpleQueue[Any]]] = (
    weakref.WeakKeyDictionary()
)


def end(threads: list[threading.Thread]) -> None:
    """Let threads that were :func:`started` end after what they are at, and wait for it a few seconds."""
    deadline = perf_counter() + _END_WITHIN_S
    for thread in threads:
        _making[thread].put(None)
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(max(0.0, deadline - perf_counter()))


@atexit.register
def _end_all() -> None:
    """The interpreter ends daemon threads where they are: inside torch's C++ that aborts the process."""
    threads = [thread for thread in list(_making) if thread.is_alive()]
    for thread in threads:
        with contextlib.suppress(queue.Empty):
            while True:
                _making[thread].get_nowait()
    end(threads)


def _serve(reading: Reading, link: _ThreadLink, number: int, progress: Any, copy: bool, debug: bool) -> None:
    mark = 1 + 2 * number

    def note(place: int) -> None:
        progress[mark + 1] = place

    def watch(indices: Iterator[Any]) -> Iterator[Any]:
        for position, index in enumerate(indices):
            note(position)
            yield index

    def new_reader() -> LocalReader:
        return LocalReader(reading, spare=SPARE, copy=copy, debug=debug, watch=watch, note=note)

    reader = new_reader()
    note(WAITING)
    while (message := link.tasks.get()) is not None and not link.ended:
        if message[0] == TASK:
            _, task, _, capacity, _, data = message
            progress[mark] = task
            note(FETCHING)
            link.reply(made(reading, reader, task, capacity, pickle.loads(data)))
            note(WAITING)
        elif message[0] == REPLAY and reading.is_iterable:
            _replay(reader, pickle.loads(message[3]))
        elif message[0] == EPOCH:
            reader = new_reader()


def _replay(reader: LocalReader, index: Any) -> None:
    """Read on past a batch that was handed out before the loader was resumed."""
    try:
        reader.read(index)
    except Exception:
        pass  # whoever resumed has seen it


def made(reading: Reading, reader: LocalReader, task: int, capacity: int, index: Any) -> Reply:
    """A batch made in this thread, or what came of trying."""
    began, cpu = perf_counter_ns(), thread_time_ns()
    kind: int = HERE
    made: Any = b""
    try:
        made = reader.read(index)
    except Exception as error:
        if isinstance(error, StopIteration) and reading.is_iterable:
            kind = EXHAUSTED
        else:
            where = f"in DataLoader thread, batch {task} (samples {index!r:.200})"
            kind, made = FAILED, _portable(ExceptionWrapper(where=where))
    return Reply(kind, task, capacity, 0, False, perf_counter_ns() - began, thread_time_ns() - cpu, made, ())


class ThreadEngine(Engine):
    """The iterator of ``worker_method="thread"``: ``num_workers`` threads, otherwise as with processes.

    Samples are made as without workers: ``get_worker_info()`` is None, and random transforms draw from the
    generators of this process, in no fixed order.
    """

    def _begin(self, loader: Any, resumed: dict[str, Any] | None) -> None:
        self.gil = GilShare()
        self._debug = bool(loader.debug)
        super()._begin(loader, resumed)

    def add_worker(self) -> Member:
        """Start one more thread."""
        member = start_thread(
            self._setup.reading,
            len(self._workers),
            self._ring.progress,
            copy=self._copies,
            debug=self._debug,
        )
        self._join(member)
        return member

    def _wait(self, deadline: float | None) -> None:
        if not self.gil.is_known:
            self.gil.watch(lambda: bool(self._poll.poll(0)))
        super()._wait(deadline)

    def _noted(self, member: Member, task: int) -> None:
        """Threads have no generators of their own."""
