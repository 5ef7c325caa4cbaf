"""A ring of recycled batch slots in one anonymous file that workers write and the loader's process reads.

Slot *i* begins at ``(i + 1) * STRIDE``: the file is sparse, a slot takes what its largest batch took. All book
keeping is the loader's: a task carries the slot it may write to, so nothing here needs a lock, and a worker that
is killed leaves nothing behind. Before the slots lies one page with every worker's progress.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotloop.feed.memory import PAGE_BYTES, Mapping, SharedFile

STRIDE = 1 << 36

#: ``progress[0]``: set when workers shall stop; then two words a worker: its task, and where it is.
STOP = 0
#: Where a worker is, if it is not reading a sample (whose position in the batch is ≥ 0).
WAITING, STARTING, COLLATING, FETCHING = -1, -2, -3, -4

#: Slots beyond those of the tasks under way: batches that may be held without being copied.
SPARE_SLOTS = 4


class Slot:
    """One stretch of the ring: bytes reserved, this process's window on it, and the worker it last went to."""

    __slots__ = ("capacity", "lease", "mapping", "number", "worker")

    def __init__(self, number: int) -> None:
        self.number = number
        self.capacity = 0
        self.mapping: Mapping | None = None
        self.worker = -1
        self.lease: Callable[[], Lease | None] = lambda: None


class Lease:
    """A batch handed out: held by its tensors' memory; when the last of them goes, the slot is free again."""

    __slots__ = ("__weakref__", "_release", "batch", "slot")

    def __init__(self, slot: Slot, release: Callable[[Slot], None], batch: int) -> None:
        self.slot = slot
        self.batch = batch
        self._release: Callable[[Slot], None] | None = release

    def give_back(self) -> None:
        """Free the slot now, whoever still looks at it. Once."""
        release, self._release = self._release, None
        if release is not None:
            release(self.slot)

    def __del__(self) -> None:
        self.give_back()


class Ring:
    """The loader's side: which slots are free, and windows on them.

    ``map_slot`` makes a window (pinned, where a device is to copy from it).
    """

    def __init__(self, *, max_workers: int, map_slot: Callable[..., Mapping] = Mapping) -> None:
        self.file = SharedFile("ring")
        self.progress_bytes = -(-(8 + 16 * max_workers) // PAGE_BYTES) * PAGE_BYTES
        self.file.reserve(self.progress_bytes)
        self.progress = progress_of(self.file.map(self.progress_bytes))
        self.slots: list[Slot] = []
        self.limit = 0
        self._map_slot = map_slot
        self._free: list[Slot] = []
        self._num_discarded = 0
        self._returned: deque[Slot] = deque()  # by whichever thread dropped the last tensor

    def take(self, worker: int) -> Slot | None:
        """A free slot, best one this worker wrote to before (its pages are mapped there); None: all in use."""
        self._collect()
        free = self._free
        for position in range(len(free) - 1, -1, -1):
            if free[position].worker == worker:
                return free.pop(position)
        if len(self.slots) < self.limit:
            slot = Slot(len(self.slots))
            self.slots.append(slot)
        elif free:
            slot = free.pop()
        else:
            return None
        slot.worker = worker
        return slot

    @property
    def num_taken(self) -> int:
        """How many slots are being written, wait to be read, or are held by batches."""
        self._collect()
        return len(self.slots) - len(self._free) - self._num_discarded

    def free(self, slot: Slot) -> None:
        """The slot may be written again."""
        self._returned.append(slot)

    def discard(self, slot: Slot) -> None:
        """Never write to the slot again: somebody in a worker still looks at it."""
        slot.mapping = None
        self.limit += 1
        self._num_discarded += 1

    def lease(self, slot: Slot, batch: int, release: Callable[[Slot], None]) -> NDArray[np.uint8]:
        """The slot's bytes; when the last array on them goes, ``release(slot)`` is called."""
        lease = Lease(slot, release, batch)
        slot.lease = weakref.ref(lease)
        return self._window(slot).array(lease)

    def view(self, slot: Slot) -> NDArray[np.uint8]:
        """The slot's bytes, to be read before it is freed."""
        return self._window(slot).array()

    def find(self, address: int) -> Lease | None:
        """The lease on the memory at an address, if there is one."""
        for slot in self.slots:
            mapping, lease = slot.mapping, slot.lease()
            if mapping and lease and 0 <= address - mapping.address < mapping.num_bytes:
                return lease
        return None

    def _window(self, slot: Slot) -> Mapping:
        mapping = slot.mapping
        if mapping is None or mapping.num_bytes < slot.capacity:
            slot.mapping = None  # a pinned window must go before the larger one comes
            mapping = slot.mapping = self._map_slot(
                self.file.descriptor, slot.capacity, offset=offset_of(slot.number)
            )
        return mapping

    def _collect(self) -> None:
        while self._returned:
            self._free.append(self._returned.popleft())


def offset_of(slot: int) -> int:
    """Where a slot begins in the file."""
    return (slot + 1) * STRIDE


def progress_of(mapping: Mapping) -> Any:
    """The words of the first page as a flat view of 64-bit integers."""
    return memoryview(mapping.array().view(np.int64))  # type: ignore[arg-type]
