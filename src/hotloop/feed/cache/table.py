"""What all processes of a cache know together: a header, who takes part, and one row of columns per sample.

The columns lie one after the other in shared memory, so that a batch of indices is looked up with a few
vectorised reads. A sample is READY or not, and stays so; a reader needs no lock.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import platform
import struct
import threading
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from hotloop import cgroups
from hotloop.feed.errors import CacheError
from hotloop.feed.layout import Layout
from hotloop.feed.memory import PAGE_BYTES, SharedFile, round_up

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

    def __exit__(self, *_: object) -> None:
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


def start_ticks(pid: int) -> int:
    """When a process started, in clock ticks since boot; 0 if there is none (a zombie counts as none)."""
    parts = cgroups.stat(pid)
    return 0 if not parts or parts[0] in "ZX" else int(parts[19])


def is_alive(pid: int, start: int) -> bool:
    """Is the process that had this number and this start still running?"""
    return pid > 0 and start_ticks(pid) == start != 0


MAGIC = 0x686F_746C_6F6F_7032
MAX_PROCESSES = 1024

READY = 1


class Header(IntEnum):
    """Which of the header's 64-bit numbers is which."""

    MAGIC = 0
    NUM_ITEMS = 1
    MAX_BYTES = 2  # what all ranks together may take
    LIMIT = 3  # what those that have met may take
    RANKS = 4
    STOPPED = 7  # 1 + the sample that must not be cached, for which nothing is served any more
    FRONTIER = 8  # bytes of the arena that are reserved
    USED = 9  # bytes of the arena that were ever handed out
    OVERHEAD = 10  # bytes reserved outside the arena
    LAYOUT_BYTES = 11
    PAUSED_UNTIL_NS = 12
    IS_PAUSED = 13  # the arena could not grow when it was last asked to
    LOOKED_NS = 14  # when somebody last looked whether memory is short
    FINGERPRINT = 16  # and the three after it


class Row(IntEnum):
    """Which number of a process's row is which."""

    PID = 0
    START = 1
    HITS = 2
    MISSES = 3
    SAVED_NS = 4


_COLUMNS: tuple[tuple[str, type[np.generic]], ...] = (
    ("offset", np.int64),
    ("num_bytes", np.int64),
    ("layout", np.uint32),
    ("cost_s", np.float32),
    ("state", np.uint8),
)

_HEADER_BYTES = 512
_ROWS_BYTES = MAX_PROCESSES * len(Row) * 8


def table_bytes(num_items: int) -> int:
    """Memory the table of so many samples takes."""
    per_item = sum(np.dtype(kind).itemsize for _, kind in _COLUMNS)
    return round_up(_HEADER_BYTES + _ROWS_BYTES + per_item * num_items + 64 * len(_COLUMNS))


class Table:
    """The shared columns, as numpy arrays for batches and as memoryviews for single samples."""

    offset: NDArray[np.int64]
    num_bytes: NDArray[np.int64]
    layout: NDArray[np.uint32]
    cost_s: NDArray[np.float32]
    state: NDArray[np.uint8]

    def __init__(self, file: SharedFile, num_items: int) -> None:
        self.num_items = num_items
        memory = file.map(table_bytes(num_items)).array()
        self.header = memoryview(memory[:_HEADER_BYTES]).cast("q")  # type: ignore[arg-type]
        rows = memory[_HEADER_BYTES : _HEADER_BYTES + _ROWS_BYTES]
        self.rows = rows.view(np.int64).reshape(MAX_PROCESSES, len(Row))
        self.one: dict[str, memoryview] = {}
        position = _HEADER_BYTES + _ROWS_BYTES
        for name, kind in _COLUMNS:
            column = memory[position : position + num_items * np.dtype(kind).itemsize].view(kind)
            setattr(self, name, column)
            self.one[name] = memoryview(column)  # type: ignore[arg-type]
            position = round_up(position + column.nbytes, 64)

    @property
    def fingerprint(self) -> bytes:
        """What samples these are."""
        first = Header.FINGERPRINT
        return bytes(self.header[first : first + 4])

    def begin(self, *, max_bytes: int, ranks: int, fingerprint: bytes) -> None:
        """Fill the header of a table that is new; the magic number last."""
        header, first = self.header, Header.FINGERPRINT
        header[Header.NUM_ITEMS] = self.num_items
        header[Header.MAX_BYTES] = max_bytes
        header[Header.LIMIT] = max_bytes // ranks
        header[Header.RANKS] = ranks
        header[Header.OVERHEAD] = table_bytes(self.num_items)
        header[Header.LAYOUT_BYTES] = PAGE_BYTES
        for position in range(4):
            word = fingerprint[8 * position : 8 * position + 8]
            header[first + position] = int.from_bytes(word, "little", signed=True)
        header[Header.MAGIC] = MAGIC

    def enroll(self) -> int:
        """A row for this process; under the lock. A dead process's row goes on counting.

        Raises:
            CacheError: more than ``MAX_PROCESSES`` take part.
        """
        for number, (pid, start) in enumerate(self.rows[:, :2].tolist()):
            if not pid or not is_alive(pid, start):
                self.rows[number, :2] = os.getpid(), start_ticks(os.getpid())
                return number
        raise CacheError(f"more than {MAX_PROCESSES} processes share one cache")


# Layouts that all processes know


#: Where the log begins in the shared file; its first page holds nothing.
LOG_OFFSET = 1 << 40

#: The layout's number when it lies behind the sample.
INLINE = 1

_LARGEST_LOG_BYTES = 1 << 20
_LENGTH = struct.Struct("<q")


class Layouts:
    """Numbers for layouts and layouts for numbers."""

    def __init__(self, file: SharedFile, table: Table) -> None:
        self._file = file
        self._table = table
        self._ceiling = max(2 * PAGE_BYTES, min(_LARGEST_LOG_BYTES, table.header[Header.LIMIT] // 64))
        self._by_number: dict[int, Layout] = {}
        self._numbers: dict[Layout, int] = {}
        self._seen = PAGE_BYTES

    def number(self, layout: Layout) -> int:
        """The number of any layout, logged if it is new; ``INLINE`` if the log is full. Under the lock."""
        self._catch_up()
        if number := self._numbers.get(layout, 0):
            return number
        header = self._table.header
        at = header[Header.LAYOUT_BYTES]
        entry = pickle.dumps(layout, pickle.HIGHEST_PROTOCOL)
        end = at + _LENGTH.size + len(entry)
        more = round_up(end) - round_up(at)
        free = header[Header.LIMIT] - header[Header.OVERHEAD] - header[Header.FRONTIER]
        if end > self._ceiling or more > free:
            return INLINE
        try:
            os.pwrite(self._file.descriptor, _LENGTH.pack(len(entry)) + entry, LOG_OFFSET + at)
        except OSError:
            return INLINE
        header[Header.OVERHEAD] += more
        header[Header.LAYOUT_BYTES] = end
        self._catch_up()
        return at

    def layout(self, number: int, sample: NDArray[np.uint8]) -> tuple[Layout, NDArray[np.uint8]]:
        """The layout of a sample and its payload alone."""
        if number == INLINE:
            length = _LENGTH.unpack(sample[-_LENGTH.size :].tobytes())[0]
            body = sample[: -_LENGTH.size - length]
            return pickle.loads(sample[body.size : -_LENGTH.size].tobytes()), body  # nosec B301
        return self.by_number(number), sample

    def by_number(self, number: int) -> Layout:
        """The layout of a number that is not ``INLINE``."""
        if number not in self._by_number:
            self._catch_up()
        return self._by_number[number]

    def trailer(self, layout: Layout) -> NDArray[np.uint8]:
        """What goes behind a sample whose layout has no number."""
        entry = pickle.dumps(layout, pickle.HIGHEST_PROTOCOL)
        return np.frombuffer(entry + _LENGTH.pack(len(entry)), np.uint8)

    def _catch_up(self) -> None:
        begin, end = self._seen, self._table.header[Header.LAYOUT_BYTES]
        if end == begin:
            return
        log = os.pread(self._file.descriptor, end - begin, LOG_OFFSET + begin)
        position = 0
        while position < len(log):
            length = _LENGTH.unpack_from(log, position)[0]
            start = position + _LENGTH.size
            layout = pickle.loads(log[start : start + length])  # nosec B301
            number = begin + position
            self._by_number[number] = layout
            self._numbers[layout] = number
            position = start + length
        self._seen = end
