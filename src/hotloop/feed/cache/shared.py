"""One process's hold on a cache: the shared parts mapped, its row of counters, the lock."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref

import numpy as np
from numpy.typing import NDArray

from hotloop.feed import budget
from hotloop.feed.cache.table import Header, Layouts, Row, SharedLock, Table
from hotloop.feed.layout import ALIGNMENT
from hotloop.feed.memory import PAGE_BYTES, SharedFile, round_up

#: Where the arena begins in the shared file.
ARENA_OFFSET = 1 << 44

_LARGEST_STEP_BYTES = 16 << 20
_PAUSE_NS = 1_000_000_000
_LOOK_NS = 50_000_000


class SampleArena:
    """A part of the shared file that grows to the cache's limit and is mapped as far as it is read."""

    def __init__(self, file: SharedFile, header: memoryview) -> None:
        self._file = file
        self._header = header
        self._bytes: NDArray[np.uint8] = np.empty(0, np.uint8)

    @property
    def room_bytes(self) -> int:
        """How long the arena may become."""
        room = self._header[Header.LIMIT] - self._header[Header.OVERHEAD]
        return max(0, room // PAGE_BYTES * PAGE_BYTES)

    def available_bytes(self) -> int:
        """About how much could still be handed out."""
        return self.room_bytes - self._header[Header.USED]

    def place(self, num_bytes: int) -> int | None:
        """Where the next sample may lie; None: no room. Under the lock."""
        start = self._header[Header.USED]
        return start if self._reserve(start + round_up(num_bytes, ALIGNMENT)) else None

    def take(self, num_bytes: int) -> None:
        """The next sample lies at its place. Under the lock."""
        self._header[Header.USED] += round_up(num_bytes, ALIGNMENT)

    def _reserve(self, end: int) -> bool:
        """Make ``end`` bytes usable; False if limit, machine or memory pressure forbid."""
        frontier = self._header[Header.FRONTIER]
        if end <= frontier:
            return True
        room = self.room_bytes
        if end > room or time.monotonic_ns() < self._header[Header.PAUSED_UNTIL_NS]:
            return False
        step = min(_LARGEST_STEP_BYTES, max(room // 64, PAGE_BYTES))
        target = min(room, round_up(max(end, frontier + step)))
        if not self._is_short():
            with contextlib.suppress(OSError):
                self._file.reserve(target - frontier, offset=ARENA_OFFSET + frontier)
                self._header[Header.FRONTIER] = target
                self._header[Header.IS_PAUSED] = False
                return True
        self._header[Header.PAUSED_UNTIL_NS] = time.monotonic_ns() + _PAUSE_NS
        self._header[Header.IS_PAUSED] = True
        return False

    def _is_short(self) -> bool:
        """Is the machine short of memory? Looking costs as much as writing a megabyte, so not every time."""
        now = time.monotonic_ns()
        if now - self._header[Header.LOOKED_NS] < _LOOK_NS:
            return False
        self._header[Header.LOOKED_NS] = now
        return budget.memory_is_short()

    def bytes(self, end: int) -> NDArray[np.uint8]:
        """The arena from its beginning to at least ``end``, flat.

        Raises:
            OSError: this process cannot map that much (``RLIMIT_AS``).
        """
        memory = self._bytes
        if end > memory.size:
            try:  # all it may come to, so that it is mapped once; where that is too much, what is reserved
                mapped = self._file.map(round_up(self._header[Header.MAX_BYTES]), offset=ARENA_OFFSET)
            except OSError:
                mapped = self._file.map(self._header[Header.FRONTIER], offset=ARENA_OFFSET)
            memory = mapped.array()
            self._bytes = max(self._bytes, memory, key=len)  # another thread may have mapped more
        return memory

    def write(self, part: NDArray[np.uint8], offset: int) -> None:
        """Fill memory that nobody touched yet: through the file, which spares a page fault per page."""
        rest = memoryview(part)  # type: ignore[arg-type]
        while rest:
            done = os.pwrite(self._file.descriptor, rest, ARENA_OFFSET + offset)
            rest, offset = rest[done:], offset + done


class Shared:
    """What reading and writing both need."""

    def __init__(self, file: SharedFile, *, num_items: int) -> None:
        self.file = file
        self.table = Table(file, num_items)
        self.header = self.table.header
        self.state = self.table.one["state"]
        self.arena = SampleArena(file, self.header)
        self.layouts = Layouts(file, self.table)
        self.lock = SharedLock(file.descriptor)
        self.after_fork()
        _holds.add(self)

    def after_fork(self) -> None:
        """What belongs to one process alone: its row and its locks."""
        self.lock.after_fork()
        self._has_row = False
        self.row = memoryview(bytearray(len(Row) * 8)).cast("q")
        self._counting = threading.Lock()

    def own_row(self) -> None:
        """Have a row for this process, which it gets when it first needs one. Takes the lock."""
        if not self._has_row:
            with self.lock:
                if not self._has_row:
                    self.row = memoryview(self.table.rows[self.table.enroll()])
                    self._has_row = True

    def count(self, index: int, *, hit: bool) -> None:
        """One reading."""
        self.own_row()
        with self._counting:
            if hit:
                self.row[Row.HITS] += 1
                self.row[Row.SAVED_NS] += int(self.table.one["cost_s"][index] * 1e9)
            else:
                self.row[Row.MISSES] += 1

    def count_hits(self, indices: NDArray[np.int64]) -> None:
        """Many readings, all of them found."""
        self.own_row()
        with self._counting:
            self.row[Row.HITS] += len(indices)
            self.row[Row.SAVED_NS] += int(float(self.table.cost_s.take(indices).sum()) * 1e9)


_holds: weakref.WeakSet[Shared] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for hold in list(_holds):
        hold.after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
