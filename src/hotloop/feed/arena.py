"""The writer's side of a ring: memory for one batch after the other, grown as needed."""

from __future__ import annotations

import ctypes
import math
import sys
from typing import Any

import numpy as np
import torch

from hotloop.feed.errors import WorkerError
from hotloop.feed.layout import ALIGNMENT
from hotloop.feed.memory import Mapping, SharedFile, round_up
from hotloop.feed.ring import STRIDE, offset_of

_GRAIN_BYTES = 1 << 16
#: The dtypes that numpy has too: tensors on memory are made fastest through it.
_NUMPYS = {
    getattr(torch, name): np.dtype(name)
    for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
}


class _Window:
    """A slot as this process sees it. ``untouched``: the references to ``bytes`` with no tensor on it."""

    __slots__ = ("bytes", "mapping", "untouched")

    def __init__(self, mapping: Mapping) -> None:
        self.mapping = mapping
        self.bytes = mapping.array()
        self.untouched = sys.getrefcount(self.bytes)


class Arena:
    """Writes batches into slots of a ring, one at a time: :meth:`open`, :meth:`out` or :meth:`place`, close.

    A batch that outgrows its slot goes on in a larger window of the same pages: what lies there stays.
    """

    def __init__(self, file: SharedFile) -> None:
        self._file = file
        self._windows: dict[int, _Window] = {}
        self._outgrown: list[_Window] = []
        self._slot = -1
        self.capacity = 0  # bytes reserved for the open slot
        self.used = 0
        self._largest = 0
        self.gives_memory = True  # false once somebody kept what he was given

    def open(self, slot: int, capacity: int) -> None:
        """Begin a batch in a slot that has ``capacity`` bytes reserved."""
        self._slot, self.capacity, self.used = slot, capacity, 0
        window = self._windows.get(slot)
        if capacity and (window is None or window.mapping.num_bytes < capacity):
            self._map(capacity)

    @property
    def is_open(self) -> bool:
        """Whether there is a slot to write to."""
        return self._slot >= 0

    def out(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """An uninitialised tensor in the slot.

        Raises:
            WorkerError: there is no memory for it.
        """
        count = math.prod(shape)
        if not count:
            return torch.empty(shape, dtype=dtype)
        offset = self._take(count * dtype.itemsize)
        return tensor_at(self._windows[self._slot].bytes, offset, dtype, shape)

    def place(self, address: int, num_bytes: int) -> int:
        """Copy what lies at an address into the slot; the offset it got.

        Raises:
            WorkerError: there is no memory for it.
        """
        offset = self._take(num_bytes)
        ctypes.memmove(self._windows[self._slot].mapping.address + offset, address, num_bytes)
        return offset

    def find(self, address: int, num_bytes: int) -> int | None:
        """The offset of memory that already lies in the slot, None for any other."""
        window = self._windows.get(self._slot)
        for one in [window, *self._outgrown] if window is not None else ():
            offset = address - one.mapping.address
            if offset >= 0 and offset + num_bytes <= one.mapping.num_bytes:
                return offset
        return None

    def close(self) -> bool:
        """End the batch: whether somebody in this process kept a tensor that lies in the slot.

        Then the slot must never be written again, and no memory is given out any more: whoever keeps one
        batch's tensors will keep the next one's.
        """
        window = self._windows.get(self._slot)
        held = any(
            sys.getrefcount(one.bytes) > one.untouched for one in [window, *self._outgrown] if one is not None
        )
        self._outgrown.clear()
        if held:
            self._windows.pop(self._slot, None)
            self.gives_memory = False
        self._slot = -1
        return held

    def _take(self, num_bytes: int) -> int:
        offset = round_up(self.used, ALIGNMENT)
        end = offset + num_bytes
        if end > self.capacity:
            self._grow(end)
        self.used = end
        return offset

    def _grow(self, end: int) -> None:
        capacity = max(round_up(end + end // 16, _GRAIN_BYTES), self._largest)
        if capacity > STRIDE:
            raise WorkerError(f"a batch of {end} bytes is more than a slot can hold ({STRIDE} bytes)")
        start = offset_of(self._slot)
        try:
            self._file.reserve(capacity - self.capacity, offset=start + self.capacity)
            self._map(capacity)
        except (OSError, MemoryError) as error:
            raise WorkerError(
                f"no memory for a batch of {end} bytes: {error}",
                hint="lower batch_size, num_workers or prefetch_factor: every batch under way has a slot "
                "of its size in host memory; or raise the limit (ulimit -v, the cgroup's memory.max)",
            ) from error
        self._largest = max(self._largest, capacity)

    def _map(self, num_bytes: int) -> None:
        window = self._windows.get(self._slot)
        if window is not None:
            self._outgrown.append(window)
        self._windows[self._slot] = _Window(self._file.map(num_bytes, offset=offset_of(self._slot)))
        self.capacity = num_bytes


def tensor_at(
    memory: Any,
    offset: int,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    stride: tuple[int, ...] | None = None,
) -> torch.Tensor:
    """A tensor on a flat uint8 array's bytes, which it keeps alive; fresh and without any if it is empty.

    ``offset`` in bytes, ``stride`` in elements; row-major without.
    """
    count = math.prod(shape)
    if not count:
        return torch.empty(shape, dtype=dtype)
    if stride is not None:
        extent = extent_of(shape, stride)
        return torch.frombuffer(memory, dtype=dtype, count=extent, offset=offset).as_strided(shape, stride)
    if dtype in _NUMPYS:
        return torch.from_numpy(np.ndarray(shape, _NUMPYS[dtype], memory, offset))
    return torch.frombuffer(memory, dtype=dtype, count=count, offset=offset).view(shape)


def extent_of(shape: tuple[int, ...], stride: tuple[int, ...]) -> int:
    """How many elements lie between the first and the last of a strided tensor, both counted."""
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
