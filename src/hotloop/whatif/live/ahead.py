"""Batches of one iterator, taken before the loop asks for them, and its workers held back meanwhile.

Workers are held back by giving them no new indices, never by stopping them: a stopped worker that loses its
parent would stay for ever. They finish what they were given and then idle, so a burst runs without their
contention; as many batches lie ready afterwards as before it, so the next block does not begin with a full
queue.
"""

from __future__ import annotations

import os
import resource
from collections import deque
from collections.abc import Iterable
from time import sleep
from typing import Any, Final

from hotloop.clock import now_ns
from hotloop.probe import batches

#: Seconds that workers get to finish what they were given.
_SETTLE_S: Final = 5.0
#: Of the memory that is left, and of the files that may be opened, a burst takes at most this part.
_PART: Final = 0.25


class Ahead:
    """The queue. It belongs to one pass of the iterator, which it does not keep alive."""

    def __init__(self, iterator: Any) -> None:
        self._queue: deque[tuple[bool, Any]] = deque()  # (is it an error, what it is)
        self._yielded = iterator._num_yielded  # batches of that pass that were handed out

    def follows(self, iterator: Any) -> bool:
        """Whether the iterator's next batch lies here."""
        return bool(self._queue) and iterator._num_yielded == self._yielded

    def pop(self) -> Any:
        """The next batch. Raises what making it raised."""
        self._yielded += 1
        failed, value = self._queue.popleft()
        if failed:
            raise value
        return value

    def take(self, iterator: Any, count: int, given: Iterable[Any] = ()) -> dict[str, Any]:
        """``count`` batches, those ``given`` first; how long that took, for «loader alone».

        ``alone_s`` and ``alone_batches``: the part of it in which neither a backlog was taken nor workers ran
        out of work.
        """
        original = type(iterator)._next_data.__wrapped__
        self._queue += [(False, batch) for batch in given]
        release(iterator)
        tasks = len(getattr(iterator, "_task_info", ()))
        hold_last = max(0, tasks - _ready(iterator))
        count -= len(self._queue)
        times = [now_ns()]
        for number in range(count):
            if number == max(0, count - hold_last):
                hold(iterator)
            try:
                self._queue.append((False, original(iterator)))
            except Exception as error:  # raised where the loop reaches it
                # The end of an epoch without its frames: they would keep the iterator alive.
                self._queue.append((True, StopIteration() if isinstance(error, StopIteration) else error))
                break
            times.append(now_ns())
        _settle(iterator)
        last = len(times) - 1 - (hold_last if tasks else 0)
        alone = max(0, last - tasks)
        return {
            "batches": len(self._queue),
            "workers": int(getattr(iterator, "_num_workers", 0)),
            "alone_batches": alone,
            "alone_s": (times[last] - times[tasks]) / 1e9 if alone else 0.0,
        }


def hold(iterator: Any) -> None:
    """Give the workers of an iterator no more indices."""
    if not hasattr(iterator, "_try_put_index"):
        return

    def held() -> None:
        if iterator._send_idx == 0:  # persistent workers begin another epoch
            iterator.__dict__.pop("_try_put_index", None)
            iterator._try_put_index()

    iterator._try_put_index = held


def release(iterator: Any) -> None:
    """Give the workers what was held back, if anything was."""
    if iterator.__dict__.pop("_try_put_index", None) is None:
        return
    room = iterator._prefetch_factor * iterator._num_workers
    for _ in range(room - len(iterator._task_info)):
        iterator._try_put_index()


def _settle(iterator: Any) -> None:
    until = now_ns() + int(_SETTLE_S * 1e9)
    while _ready(iterator) < len(getattr(iterator, "_task_info", ())) and now_ns() < until:
        sleep(0.001)


def _ready(iterator: Any) -> int:
    """Batches that lie ready."""
    if not hasattr(iterator, "_task_info"):
        return 0
    return int(len(iterator._task_info) - iterator._tasks_outstanding + iterator._data_queue.qsize())


def most_batches(batch: Any) -> int:
    """How many batches like this one may be held: of memory, of shared memory, and of open files."""
    fields = batches.fields(batch)
    num_bytes = max(1, sum(field["bytes"] for field in fields))
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - len(os.listdir("/proc/self/fd"))
    limits = [_available() / num_bytes, files / max(1, len(fields))]
    return int(_PART * min(limits))


def _available() -> float:
    """Bytes of memory that are left, and of /dev/shm, whichever is less."""
    shared = os.statvfs("/dev/shm")
    left = float(shared.f_bavail * shared.f_frsize)
    with open("/proc/meminfo") as stream:
        for line in stream:
            if line.startswith("MemAvailable:"):
                return min(left, 1024.0 * int(line.split()[1]))
    return left
