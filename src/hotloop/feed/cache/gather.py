"""A batch of samples of one layout, copied leaf by leaf in one go, as torch's ``default_collate`` has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hotloop.feed import layout as layouts
from hotloop.feed.batching import Batch, batch_dtype
from hotloop.feed.collating import Out
from hotloop.feed.layout import ALIGNMENT, Field, Layout

_STRINGS = (layouts.TEXT, layouts.BYTES)

#: From this size of a leaf on, one copy after the other beats numpy's indexing, which copies twice.
_LOOPED_BYTES = 8192
#: Rows of so many elements torch copies through its iterator, shorter ones as bytes.
_LONG = 32768


@dataclass(frozen=True, kw_only=True)
class Batched:
    """How to gather a layout; the dtype of a leaf is None where it is text or bytes."""

    batch: Batch
    num_bytes: int
    leaves: tuple[tuple[Field, torch.dtype | None], ...]

    def gather(self, arena: NDArray[np.uint8], offsets: NDArray[np.int64], out: Out) -> list[Any]:
        """The leaves of the batch of samples at these offsets (multiples of 64)."""
        return [_leaf(field, dtype, arena, offsets, out) for field, dtype in self.leaves]

    def collated(self, leaves: list[Any]) -> Any:
        """The batch of these leaves; only now that they are known to be whole, bytes become text."""
        for position, (field, _) in enumerate(self.leaves):
            if field.kind == layouts.TEXT:
                leaves[position] = [raw.decode("utf-8", "surrogatepass") for raw in leaves[position]]
        return self.batch.build(leaves)


def plan_batch(layout: Layout) -> Batched | None:
    """How to gather samples of this layout; None where only ``default_collate`` itself knows."""
    batch = Batch.of(layout.structure)
    leaves = tuple((field, batch_dtype(field.kind, field.dtype)) for field in layout.fields)
    known = all(dtype is not None or field.kind in _STRINGS for field, dtype in leaves)
    if batch is None or not known or not layout.num_bytes:
        return None
    return Batched(batch=batch, num_bytes=layout.num_bytes, leaves=leaves)


def _leaf(
    field: Field,
    dtype: torch.dtype | None,
    arena: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    out: Out,
) -> Any:
    if dtype is None:
        starts = (offsets + field.offset).tolist()
        return [arena[start : start + field.num_bytes].tobytes() for start in starts]
    batch = out((len(offsets), *field.shape), dtype)
    if field.num_bytes:
        into = batch.view(len(offsets), -1).view(torch.uint8)
        _copy_rows(arena[field.offset :], offsets, into)
    return batch


def _copy_rows(arena: NDArray[np.uint8], starts: NDArray[np.int64], into: torch.Tensor) -> None:
    """Row ``k`` of ``into`` from ``starts[k]``."""
    size = into.shape[1]
    # Rows that overlap, 64 bytes apart: any sample's leaf is one of them.
    num_rows = (arena.size - size) // ALIGNMENT + 1
    dtype = torch.uint8 if size < _LONG else torch.int64
    width = dtype.itemsize
    fits = size < _LONG * width and size % width == 0 and into.storage_offset() % width == 0
    # Torch's threads, where it has several, cost more than they bring here.
    if fits and torch.get_num_threads() == 1:
        # One call, which leaves the interpreter free until the last row.
        flat = torch.from_numpy(arena[: arena.size // width * width]).view(dtype)
        rows = flat.as_strided((num_rows, size // width), (ALIGNMENT // width, 1))
        torch.index_select(rows, 0, torch.from_numpy(starts // ALIGNMENT), out=into.view(dtype))
    elif size >= _LOOPED_BYTES:
        target = into.numpy()
        for row, start in enumerate(starts.tolist()):
            target[row] = arena[start : start + size]
    else:
        overlapping = np.ndarray((num_rows, size), np.uint8, arena, 0, (ALIGNMENT, 1))
        into.numpy()[...] = overlapping[starts // ALIGNMENT]
