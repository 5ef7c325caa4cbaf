"""Floating-point values of which there are at most 256, as their numbers in a table: one byte each.

A palette learns its values from what it is given, by their bits, so that not-a-numbers and negative zeros
come back as they were. A value keeps its number: what was coded before is read with any later table.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from hotloop import fast

#: Values that a byte tells apart.
MOST: Final = 256
#: Unsigned integers with the bits of a value, and the signed ones of torch.
_BITS: Final = {torch.float32: (np.uint32, torch.int32), torch.float64: (np.uint64, torch.int64)}
#: What a palette can be made of.
DTYPES: Final = frozenset(_BITS)
#: A value's bits times a factor say in which of so many slots its number stands, as ``_fast.c`` has it.
_SLOTS_BITS: Final = 14
_FACTOR: Final = 0x9E3779B97F4A7C15


class Palette:
    """The values of one field: one table for all of them, or one for each channel."""

    def __init__(self, dtype: torch.dtype, channels: int = 1) -> None:
        self.dtype = dtype
        self.channels = channels
        self._unsigned = _BITS[dtype][0]
        self._values: NDArray[Any] = np.zeros((channels, MOST), self._unsigned)
        self._slots = np.zeros((channels, 1 << _SLOTS_BITS), np.uint8)
        self._counts = np.zeros(channels, np.int64)
        self._factors = np.full(channels, _FACTOR, np.uint64)

    def copy(self) -> Palette:
        """Another one that goes on from here."""
        other = Palette(self.dtype, self.channels)
        for name in ("_values", "_slots", "_counts", "_factors"):
            getattr(other, name)[...] = getattr(self, name)
        return other

    def encode(self, values: torch.Tensor, into: torch.Tensor, inner: int) -> bool:
        """Write the number of every value into as many bytes; False where there are more than 256 values.

        Both are contiguous, ``inner`` values of each channel follow each other. Values met for the first time
        are learned, those before the one that is too many as well.
        """
        shape = (values.numel() // (self.channels * inner), self.channels, inner)
        if fast.encode is not None:
            where = (into.data_ptr(), values.data_ptr(), values.element_size())
            return bool(fast.encode(*where, *shape, self._values, self._slots, self._counts, self._factors))
        bits = values.detach().numpy().reshape(shape).view(self._unsigned)
        numbers = into.numpy().reshape(shape)
        return all(self._by_numpy(bits[:, c], numbers[:, c], c) for c in range(self.channels))

    def table(self) -> bytes:
        """The values of every channel, in the order of their numbers, 256 each."""
        return self._values.tobytes()

    # -- without what is compiled ----------------------------------------------------------------------------

    def _by_numpy(self, bits: NDArray[Any], into: NDArray[np.uint8], channel: int) -> bool:
        """The same of one channel."""
        mine, slots = self._values[channel], self._slots[channel]
        into[...] = slots[self._slot(bits, channel)]
        known = int(self._counts[channel])
        other = mine[into] != bits if known else np.ones_like(bits, bool)
        if not other.any():
            return True
        new = np.unique(bits[other])
        end = known + len(new)
        if end > MOST:
            return False
        mine[known:end] = new
        self._counts[channel] = end
        while len(np.unique(self._slot(mine[:end], channel))) < end:  # two values would share a slot
            self._factors[channel : channel + 1] *= np.uint64(0x5851F42D4C957F2D)
        slots[self._slot(mine[:end], channel)] = np.arange(end, dtype=np.uint8)
        into[...] = slots[self._slot(bits, channel)]
        return True

    def _slot(self, bits: NDArray[Any], channel: int) -> NDArray[Any]:
        factor = self._factors[channel : channel + 1].astype(self._unsigned)
        found: NDArray[Any] = (bits * factor) >> self._unsigned(8 * bits.itemsize - _SLOTS_BITS)
        return found


def table_of(table: bytes, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A palette's table on a device, as integers: nothing is ever computed with the values."""
    return torch.frombuffer(bytearray(table), dtype=_BITS[dtype][1]).view(-1, MOST).to(device)


def look_up(numbers: torch.Tensor, table: torch.Tensor, into: torch.Tensor, inner: int) -> None:
    """Fill ``into``, dense and as large as ``numbers``, with the values they stand for, in memory's order."""
    channels = len(table)
    if numbers.is_cpu and fast.decode is not None:
        shape = (numbers.numel() // (channels * inner), channels, inner)
        fast.decode(into.data_ptr(), numbers.data_ptr(), table.element_size(), *shape, table.numpy())
        return
    places = numbers.view(-1, channels, inner).to(torch.int32)
    if channels > 1:
        first = torch.arange(0, channels * MOST, MOST, dtype=torch.int32, device=numbers.device)
        places += first.view(-1, 1)
    flat = into.as_strided((into.numel(),), (1,)).view(table.dtype)
    torch.index_select(table.view(-1), 0, places.view(-1), out=flat)
