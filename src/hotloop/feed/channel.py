"""What passes between a loader and one of its workers: tuples of plain data over a pair of pipes.

``marshal`` serves, as both run the same interpreter. Every worker has pipes of its own, so that one killed in
the middle of a write spoils nobody else's. The loader never blocks on a write: what does not fit waits here
until the worker has read.
"""

from __future__ import annotations

import fcntl
import marshal
import os
import select
import signal
import struct
import weakref
from multiprocessing import reduction
from time import perf_counter
from typing import Any

_LENGTH = struct.Struct("<I")
_READ_BYTES = 1 << 16
#: Waking a process whose core is idle costs whoever wakes it 30 to 150 us where machines are virtual.
_SPIN_S = 2e-4
#: Where somebody else has the core for so long when it is offered, it is waited for asleep for some time.
_TAKEN_S = 1e-3
_REST_S = 1.0


class Watch:
    """Waits for a descriptor to have something to read: awake at first, if the wait before was short."""

    def __init__(self, descriptor: int) -> None:
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self._was_short = False
        self._rests_until = 0.0

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether there is something to read, or the end; after ``timeout_s`` there is not."""
        poll = self._poll.poll
        if poll(0):
            return True
        began = now = perf_counter()
        if self._was_short and began > self._rests_until:
            while now - began < _SPIN_S:
                os.sched_yield()  # whoever has work may have the core
                before, now = now, perf_counter()
                if now - before > _TAKEN_S:
                    self._rests_until = now + _REST_S
                if poll(0):
                    return True
        found = bool(poll(None if timeout_s is None else timeout_s * 1000))
        self._was_short = perf_counter() - began < _SPIN_S
        return found


class Link:
    """The loader's side: sends tasks, receives replies. ``ended`` is true once the worker's side is gone."""

    def __init__(self, tasks: int, replies: int) -> None:
        os.set_blocking(tasks, False)
        self.tasks = tasks
        self.replies = replies
        self.watch = Watch(replies)
        self.ended = False
        self._unsent = bytearray()
        self._partial = bytearray()
        _links.add(self)

    def send(self, message: tuple[Any, ...]) -> None:
        """Send, or keep for :meth:`flush` what the pipe does not take now."""
        self._unsent += _framed(message)
        self.flush()

    def flush(self) -> bool:
        """Send what waits; true when nothing is left."""
        while self._unsent and not self.ended:
            try:
                del self._unsent[: os.write(self.tasks, self._unsent)]
            except BlockingIOError:
                return False
            except BrokenPipeError:
                self.ended = True
        return True

    def receive(self) -> list[Any]:
        """The messages that are complete after one read; call it when there is something to read."""
        data = os.read(self.replies, _READ_BYTES)
        self.ended |= not data
        return _messages(self._partial, data)

    def close(self) -> None:
        """Let go of both pipes: the worker reads the end of its tasks."""
        for descriptor in (self.tasks, self.replies):
            if descriptor >= 0:
                os.close(descriptor)
        self.tasks = self.replies = -1
        self.ended = True


class Ends:
    """The worker's side. Pickling works only while a child process is being started."""

    def __init__(self, tasks: int, replies: int, life: int) -> None:
        self.tasks, self.replies, self.life = tasks, replies, life
        self._watch: Watch | None = None
        self._partial = bytearray()
        self._arrived: list[Any] = []

    def die_with_loader(self) -> None:
        """From now on this process is ended by the kernel when the loader's process is gone.

        The loader holds the only other end of a pipe: when that closes, SIGIO comes, whose default action
        ends a process whatever it is busy with. The parent-death signal would not do: it follows the *thread*
        that started this process. The pipe is opened anew because its owner is a property of the open file.
        """
        try:
            own = os.open(f"/proc/self/fd/{self.life}", os.O_RDONLY | os.O_NONBLOCK)
            signal.signal(signal.SIGIO, signal.SIG_DFL)
            fcntl.fcntl(own, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(own, fcntl.F_SETFL, fcntl.fcntl(own, fcntl.F_GETFL) | os.O_ASYNC)
            if os.read(own, 1) == b"":  # it was gone before
                os._exit(1)
        except OSError:  # it lives; without /proc the end of the tasks is found between two batches
            pass

    def receive(self) -> Any:
        """The next message, None at the end."""
        watch = self._watch = self._watch or Watch(self.tasks)
        while not self._arrived:
            watch.wait()
            try:
                data = os.read(self.tasks, _READ_BYTES)
            except OSError:
                return None
            if not data:
                return None
            self._arrived = _messages(self._partial, data)
        return self._arrived.pop(0)

    def send(self, message: tuple[Any, ...]) -> None:
        """Send one message whole.

        Raises:
            BrokenPipeError: the loader is gone.
        """
        rest = _framed(message)
        while rest:
            rest = rest[os.write(self.replies, rest) :]

    def close(self) -> None:
        """In the loader's process, when the worker has its own copies."""
        os.close(self.tasks)
        os.close(self.replies)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, tuple(reduction.DupFd(one) for one in (self.tasks, self.replies, self.life))


def connect(life: int) -> tuple[Link, Ends]:
    """Both sides for one worker. ``life`` is the read end of the pipe whose write end the loader keeps."""
    tasks_read, tasks_write = os.pipe()
    try:
        replies_read, replies_write = os.pipe()
    except OSError:
        os.close(tasks_read)
        os.close(tasks_write)
        raise
    return Link(tasks_write, replies_read), Ends(tasks_read, replies_write, life)


class Life:
    """A pipe nobody writes to: its read end tells workers that the loader is gone."""

    def __init__(self) -> None:
        self.read, self._write = os.pipe()
        _links.add(self)

    def close(self) -> None:
        """End every worker that is still there."""
        if self._write >= 0:
            os.close(self.read)
            os.close(self._write)
            self.read = self._write = -1

    def close_write(self) -> None:
        """In a forked child: it is not the loader."""
        if self._write >= 0:
            os.close(self._write)
            self._write = -1


def _framed(message: tuple[Any, ...]) -> bytes:
    data = marshal.dumps(message)
    return _LENGTH.pack(len(data)) + data


def _messages(partial: bytearray, data: bytes) -> list[Any]:
    """The complete messages in ``partial + data``; the rest stays in ``partial``."""
    partial += data
    found, start, end = [], 0, len(partial)
    with memoryview(partial) as whole:
        while end - start >= _LENGTH.size:
            first = start + _LENGTH.size
            stop = first + _LENGTH.unpack_from(whole, start)[0]
            if stop > end:
                break
            found.append(marshal.loads(whole[first:stop]))  # nosec B302
            start = stop
    del partial[:start]
    return found


def _rebuilt(*descriptors: Any) -> Ends:
    return Ends(*(one.detach() for one in descriptors))


#: Every loader's side in this process. A forked child must not hold them: workers would not see their end.
_links: weakref.WeakSet[Any] = weakref.WeakSet()


def _leave_to_parent() -> None:
    for link in list(_links):
        if isinstance(link, Life):
            link.close_write()
        else:
            link.close()


os.register_at_fork(after_in_child=_leave_to_parent)
