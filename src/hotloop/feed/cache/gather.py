"""A batch of samples of one layout, copied leaf by leaf in one go, as torch's ``default_collate`` has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hotloop.feed import layout as layouts
from hotloop.feed.collating import Out
from hotloop.feed.layout import ALIGNMENT, DTYPES, Field, Layout
from hotloop.feed.tree import Branch, Structure, unflatten

_STRINGS = (layouts.TEXT, layouts.BYTES)
_NUMBERS = {layouts.INTEGER: torch.int64, layouts.REAL: torch.float64, layouts.BOOLEAN: torch.bool}


#: From this size of a leaf on, one copy after the other beats numpy's indexing, which copies twice.
_LOOPED_BYTES = 8192


@dataclass(frozen=True, kw_only=True)
class Batched:
    """How to gather a layout: the structure of the batch and the dtype and shape of each leaf."""

    structure: Structure
    num_bytes: int
    leaves: tuple[tuple[Field, torch.dtype | None], ...]
    #: Of each leaf: what a batch of strings is there. ``default_collate`` transposes sequences into tuples.
    strings: tuple[type, ...]

    def gather(self, arena: NDArray[np.uint8], offsets: NDArray[np.int64], out: Out) -> list[Any]:
        """The leaves of the batch of samples at these offsets (multiples of 64)."""
        return [_leaf(field, dtype, arena, offsets, out) for field, dtype in self.leaves]

    def collated(self, leaves: list[Any]) -> Any:
        """The batch of these leaves; only now that they are known to be whole, bytes become text."""
        for position, (field, _) in enumerate(self.leaves):
            if field.kind == layouts.TEXT:
                leaves[position] = [raw.decode("utf-8", "surrogatepass") for raw in leaves[position]]
            if field.kind in _STRINGS:
                leaves[position] = self.strings[position](leaves[position])
        return unflatten(self.structure, leaves)


def plan_batch(layout: Layout) -> Batched | None:
    """How to gather samples of this layout; None where only ``default_collate`` itself knows."""
    structure = _collated(layout.structure)
    leaves = [_dtype(field) for field in layout.fields]
    if structure is None or any(leaf is None for leaf in leaves) or not layout.num_bytes:
        return None
    typed = tuple(
        (field, leaf if isinstance(leaf, torch.dtype) else None)
        for field, leaf in zip(layout.fields, leaves, strict=True)
    )
    strings = tuple(_string_batches(layout.structure, list))
    return Batched(structure=structure, num_bytes=layout.num_bytes, leaves=typed, strings=strings)


def _string_batches(structure: Structure, parent: type) -> list[type]:
    if not isinstance(structure, Branch):
        return [parent]
    kind = list if structure.kind == "mapping" else tuple
    return [found for child in structure.children for found in _string_batches(child, kind)]


def _collated(structure: Structure) -> Structure | None:
    """What ``default_collate`` makes of a structure: tuples become lists, named tuples and dicts stay."""
    if not isinstance(structure, Branch):
        return structure
    children = [_collated(child) for child in structure.children]
    kept = [child for child in children if child is not None]
    if len(kept) < len(children) or not children:
        return None
    if structure.type in (tuple, list):
        return Branch("list", list, (), tuple(kept))
    if structure.type is dict or structure.kind == "namedtuple":
        return structure._replace(children=tuple(kept))
    return None


def _dtype(field: Field) -> torch.dtype | str | None:
    """The dtype of a leaf's batch, or a word for lists of bytes and text."""
    if field.kind == layouts.TENSOR:
        return DTYPES[field.dtype]
    if field.kind == layouts.ARRAY:
        try:
            return torch.from_numpy(np.empty(0, field.dtype)).dtype
        except (TypeError, ValueError):
            return None
    if field.kind in _STRINGS:
        return field.kind
    return _NUMBERS.get(field.kind)


def _leaf(
    field: Field,
    dtype: torch.dtype | None,
    arena: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    out: Out,
) -> Any:
    if dtype is None:
        return _strings(field, arena, offsets)
    batch = out((len(offsets), *field.shape), dtype)
    if field.num_bytes:
        into = batch.reshape(-1).view(torch.uint8).view(len(offsets), field.num_bytes).numpy()
        _copy_rows(arena, offsets + field.offset, into)
    return batch


def _copy_rows(arena: NDArray[np.uint8], starts: NDArray[np.int64], into: NDArray[np.uint8]) -> None:
    """Row ``k`` of ``into`` from ``starts[k]``. Not by torch: its threads cost more than they bring here."""
    size = into.shape[1]
    if size >= _LOOPED_BYTES:
        for row, start in enumerate(starts.tolist()):
            into[row] = arena[start : start + size]
        return
    # Rows that overlap, 64 bytes apart: any sample's leaf is one of them.
    num_rows = (arena.size - size) // ALIGNMENT + 1
    rows = np.ndarray((num_rows, size), np.uint8, arena, 0, (ALIGNMENT, 1))
    into[...] = rows[starts // ALIGNMENT]


def _strings(field: Field, arena: NDArray[np.uint8], offsets: NDArray[np.int64]) -> list[bytes]:
    starts = (offsets + field.offset).tolist()
    return [arena[start : start + field.num_bytes].tobytes() for start in starts]
