"""A lock between processes and threads that the kernel releases when its holder dies."""

from __future__ import annotations

import fcntl
import os
import platform
import threading
from types import TracebackType

from hotloop.feed.errors import CacheError

_STRONG_MEMORY_ORDER = platform.machine().lower() in ("x86_64", "amd64", "i686")
_fence_lock = threading.Lock()


def fence() -> None:
    """What was stored (read) before is seen (done) before what comes after, by every process.

    x86 keeps that order by itself. Elsewhere a release followed by an acquire is a full barrier, and taking a
    lock twice is the one way to get them in plain Python.
    """
    if not _STRONG_MEMORY_ORDER:
        with _fence_lock:
            pass
        with _fence_lock:
            pass


class SharedLock:
    """Exclusive among all threads of all processes that share a file; gone with its holder.

    A ``flock`` belongs to an open file description, and a forked child shares its parent's: every process
    opens its own through ``/proc/self/fd``. Not reentrant.
    """

    def __init__(self, descriptor: int) -> None:
        self._file = descriptor
        self._description = -1
        self._threads = threading.Lock()

    def __enter__(self) -> None:
        self._threads.acquire()
        try:
            if self._description < 0:
                self._description = _own_description(self._file)
            fcntl.flock(self._description, fcntl.LOCK_EX)
        except BaseException:
            self._threads.release()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            fcntl.flock(self._description, fcntl.LOCK_UN)
        finally:
            self._threads.release()

    def close(self) -> None:
        """Let go of this process's description."""
        if self._description >= 0:
            os.close(self._description)
            self._description = -1

    def after_fork(self) -> None:
        """Forget the parent's description, and the thread that may have held the lock while it forked."""
        self.close()
        self._threads = threading.Lock()

    def __del__(self) -> None:
        self.close()


def _own_description(descriptor: int) -> int:
    try:
        return os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise CacheError(
            f"a shared cache needs /proc/self/fd, which this system lacks: {error.strerror}",
            hint="the shared cache runs on Linux",
        ) from None
