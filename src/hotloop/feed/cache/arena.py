"""The memory of the samples: a part of the shared file, reserved as it fills and mapped as it is read.

One sample lies behind the other, for good: nothing is wasted and nothing moves.
"""

from __future__ import annotations

import os
import time
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from hotloop.feed import budget
from hotloop.feed.cache.table import Header
from hotloop.feed.layout import ALIGNMENT
from hotloop.feed.memory import PAGE_BYTES, Mapping, SharedFile, round_up

#: Where the arena begins in the shared file.
ARENA_OFFSET = 1 << 44

_LARGEST_STEP_BYTES = 16 << 20
_PAUSE_NS = 1_000_000_000
_LOOK_NS = 50_000_000


class Pause(IntEnum):
    """Why the arena does not grow for now."""

    NONE = 0
    REFUSED = 1
    PRESSURE = 2


class SampleArena:
    """A part of the shared file that grows to the cache's limit and is mapped as far as it is read."""

    def __init__(self, file: SharedFile, header: memoryview) -> None:
        self._file = file
        self._header = header
        self._bytes: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._frozen: NDArray[np.uint8] = np.empty(0, np.uint8)

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
        if self._is_short():
            return self._pause(Pause.PRESSURE)
        step = min(_LARGEST_STEP_BYTES, max(room // 64, PAGE_BYTES))
        for target in (min(room, round_up(max(end, frontier + step))), round_up(end)):
            try:
                self._file.reserve(target - frontier, offset=ARENA_OFFSET + frontier)
            except OSError:
                continue
            self._header[Header.FRONTIER] = target
            self._header[Header.PAUSE_REASON] = Pause.NONE
            return True
        return self._pause(Pause.REFUSED)

    def _is_short(self) -> bool:
        """Is the machine short of memory? Looking costs as much as writing a megabyte, so not every time."""
        now = time.monotonic_ns()
        if now - self._header[Header.LOOKED_NS] < _LOOK_NS:
            return False
        self._header[Header.LOOKED_NS] = now
        return budget.memory_is_short()

    def _pause(self, reason: Pause) -> bool:
        self._header[Header.PAUSED_UNTIL_NS] = time.monotonic_ns() + _PAUSE_NS
        self._header[Header.PAUSE_REASON] = reason
        return False

    def bytes(self, end: int) -> NDArray[np.uint8]:
        """The arena from its beginning to at least ``end``, flat.

        Raises:
            OSError: this process cannot map that much (``RLIMIT_AS``).
        """
        memory = self._bytes
        if end > memory.size:
            memory = self._map(end, writable=True).array()
            self._bytes = max(self._bytes, memory, key=len)  # another thread may have mapped more
        return memory

    def frozen(self, end: int) -> NDArray[np.uint8]:
        """The same bytes on pages that cannot be written to, for views that are handed out."""
        memory = self._frozen
        if end > memory.size:
            mapping = self._map(end, writable=False)
            # The array may be asked for as a tensor; the pages stay read-only.
            mapping.__array_interface__["data"] = (mapping.address, False)
            memory = mapping.array()
            self._frozen = max(self._frozen, memory, key=len)
        return memory

    def write(self, parts: list[NDArray[np.uint8]], offset: int) -> None:
        """Fill memory that nobody touched yet: through the file, which spares a page fault per page."""
        position = ARENA_OFFSET + offset
        views = [memoryview(part) for part in parts if part.size]  # type: ignore[arg-type]
        while views:
            done = os.pwritev(self._file.descriptor, views[:512], position)
            position += done
            while views and done >= views[0].nbytes:
                done -= views[0].nbytes
                del views[0]
            if done:
                views[0] = views[0][done:]

    def _map(self, end: int, *, writable: bool) -> Mapping:
        sizes = (self._header[Header.MAX_BYTES], self._header[Header.FRONTIER], round_up(end))
        for size in sizes[:-1]:
            if size >= end:
                try:
                    return self._file.map(round_up(size), offset=ARENA_OFFSET, writable=writable)
                except OSError:
                    continue
        return self._file.map(sizes[-1], offset=ARENA_OFFSET, writable=writable)
