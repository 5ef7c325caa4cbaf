"""A ring of recycled batch slots in one anonymous file that workers write and the loader's process reads.

Slot *i* begins at ``(i + 1) * STRIDE``: the file is sparse, a slot takes what its largest batch took. The
loader keeps the books: a task carries the slot it may write to, so nothing here needs a lock, and a killed
worker leaves nothing behind. Before the slots lies a page with every worker's progress.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hotloop.feed.errors import FeedError
from hotloop.feed.memory import PAGE_BYTES, Mapping, SharedFile

STRIDE: Final = 1 << 36

#: ``progress[0]``: set when workers shall stop; then two words a worker: its task, and where it is.
STOP: Final = 0
#: Where a worker is, if it is not reading a sample (whose position in the batch is ≥ 0).
WAITING, STARTING, COLLATING, FETCHING = -1, -2, -3, -4
#: How many workers the page has room for.
MOST_WORKERS: Final = 4 * PAGE_BYTES // 16 - 1
PROGRESS_BYTES: Final = 4 * PAGE_BYTES

#: Batches that may be held without being copied, beyond those under way.
SPARE_SLOTS: Final = 4

#: What a slot is filled with when it is given back (``debug``): not a number in any floating-point dtype.
_POISON: Final = 0xFF


@dataclass(eq=False, slots=True)
class Slot:
    """One stretch of the ring: bytes reserved, this process's window on it, the worker it last went to.

    ``event`` is the device's last copy from it, where the slot is pinned.
    """

    number: int
    capacity: int = 0
    mapping: Mapping | None = None
    worker: int = -1
    event: Any = None


class Lease:
    """A batch handed out: held by its tensors' memory. When the last of them goes, the slot is free again."""

    __slots__ = ("__array_interface__", "_release", "_slot", "_window")

    def __init__(self, slot: Slot, window: Mapping, release: Callable[[Slot], None]) -> None:
        self._slot, self._window, self._release = slot, window, release
        self.__array_interface__ = window.__array_interface__

    def __del__(self) -> None:
        self._release(self._slot)


class Ring:
    """The loader's side: which slots are free, and windows on them.

    ``map_slot`` makes a window and ``last_copy`` gives an event after the device's copies so far, where the
    slots are pinned. ``debug``: free slots are poisoned.
    """

    def __init__(
        self,
        *,
        map_slot: Callable[..., Mapping] = Mapping,
        last_copy: Callable[[], Any] | None = None,
        debug: bool = False,
    ) -> None:
        self.file = SharedFile("ring")
        self.file.reserve(PROGRESS_BYTES)
        self.progress = progress_of(self.file)
        self.slots: list[Slot] = []
        self.limit = 0
        self._pid = os.getpid()
        self._num_discarded = 0
        self._map_slot = map_slot
        self._last_copy = last_copy
        self._debug = debug
        self._free: list[Slot] = []
        self._cooling: list[Slot] = []  # the device may still be reading
        self._returned: deque[Slot] = deque()  # by whichever thread dropped the last tensor

    def take(self, worker: int) -> Slot:
        """A free slot, best one this worker wrote to before: its pages are mapped there.

        Raises:
            FeedError: there is none.
        """
        slot = self._choose(worker)
        slot.worker = worker
        return slot

    def _choose(self, worker: int) -> Slot:
        self._collect()
        free = self._free
        for position in range(len(free) - 1, -1, -1):
            if free[position].worker == worker:
                return free.pop(position)
        if len(self.slots) < self.limit:
            self.slots.append(Slot(len(self.slots)))
            return self.slots[-1]
        if not free and self._cooling:
            self._cooling[0].event.synchronize()
            self._collect()
        if not free:
            raise FeedError("no slot is free for another batch: more are under way than were asked for")
        return free.pop()

    @property
    def num_taken(self) -> int:
        """How many slots are being written, wait to be read, or are held by batches."""
        self._collect()
        return len(self.slots) - len(self._free) - len(self._cooling) - self._num_discarded

    def free(self, slot: Slot) -> None:
        """The slot may be written again, from any thread; if pinned, after the device's copies from it."""
        if os.getpid() != self._pid or sys.is_finalizing():
            return  # a forked child dropped its view of a batch, or everything is going
        if self._last_copy is not None:
            slot.event = self._last_copy()
        if self._debug and slot.mapping is not None:
            slot.mapping.array()[:] = _POISON
        self._returned.append(slot)

    def discard(self, slot: Slot) -> None:
        """Never write to the slot again: somebody in a worker still looks at it."""
        slot.mapping = None
        self.limit += 1
        self._num_discarded += 1

    def lease(self, slot: Slot, release: Callable[[Slot], None]) -> NDArray[np.uint8]:
        """The slot's bytes; when the last array on them goes, ``release(slot)`` is called."""
        return np.asarray(Lease(slot, self._window(slot), release))

    def view(self, slot: Slot) -> NDArray[np.uint8]:
        """The slot's bytes, to be read before it is freed."""
        return self._window(slot).array()

    def _window(self, slot: Slot) -> Mapping:
        if slot.mapping is None or slot.mapping.num_bytes < slot.capacity:
            slot.mapping = None  # a pinned window must go before the larger one comes
            slot.mapping = self._map_slot(self.file.descriptor, slot.capacity, offset=offset_of(slot.number))
        return slot.mapping

    def _collect(self) -> None:
        while self._returned:
            slot = self._returned.popleft()
            (self._free if slot.event is None else self._cooling).append(slot)
        while self._cooling and self._cooling[0].event.query():
            self._free.append(self._cooling.pop(0))


def offset_of(slot: int) -> int:
    """Where a slot begins in the file."""
    return (slot + 1) * STRIDE


def progress_of(file: SharedFile) -> Any:
    """The words of the first pages, as a flat view of 64-bit integers."""
    return memoryview(file.map(PROGRESS_BYTES).array().view(np.int64))  # type: ignore[arg-type]
