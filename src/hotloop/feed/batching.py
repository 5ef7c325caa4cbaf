"""How leaves that were gathered one by one become the batch that ``default_collate`` makes of the samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate

from hotloop.feed import layout
from hotloop.feed.collating import Out
from hotloop.feed.layout import Field
from hotloop.feed.tree import Branch, Structure, unflatten

_NUMBERS = {layout.INTEGER: torch.int64, layout.REAL: torch.float64, layout.BOOLEAN: torch.bool}


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The structure of a batch, and of each leaf the sequence in which torch hands on what is no tensor."""

    structure: Structure
    sequences: tuple[type, ...]

    @classmethod
    def of(cls, structure: Structure) -> Batch | None:
        """The batch of samples of this structure; None where only ``default_collate`` itself knows."""
        batched = _batched(structure)
        if batched is None:
            return None
        return cls(structure=batched, sequences=tuple(_sequences(structure, list)))

    def build(self, leaves: Sequence[Any]) -> Any:
        """The batch of these leaves: of each its tensor, or the values of all samples yet to be collated."""
        pairs = zip(leaves, self.sequences, strict=True)
        done = [
            leaf if isinstance(leaf, torch.Tensor) else default_collate(sequence(leaf))
            for leaf, sequence in pairs
        ]
        return unflatten(self.structure, done)


def batch_dtype(field: Field) -> torch.dtype | None:
    """What ``default_collate`` makes of such leaves; None where it has no tensor for them."""
    kind, dtype = field.kind, field.dtype.partition("@")[0]
    if kind == layout.TENSOR:
        return layout.DTYPES[dtype]
    if kind not in (layout.ARRAY, layout.SCALAR):
        return _NUMBERS.get(kind)
    try:
        return torch.from_numpy(np.empty(0, dtype)).dtype
    except (TypeError, ValueError):
        return None


def filled(
    fill: Callable[[torch.Tensor], None], num: int, field: Field, kind: torch.dtype, out: Out
) -> torch.Tensor:
    """The batch of such leaves: ``fill`` copies the samples as they lie in memory."""
    _, raw_shape, inverse = layout.ordered(field.dtype, field.shape)
    batch = out((num, *field.shape), kind)
    if not inverse:
        fill(batch)
        return batch
    raw = torch.empty((num, *raw_shape), dtype=kind)
    fill(raw)
    samples = raw.permute(0, *(1 + dimension for dimension in inverse))
    sample = torch.empty(raw_shape, device="meta").permute(inverse)
    if torch.stack([sample]).stride()[1:] == sample.stride():  # channels last: torch keeps the order
        return samples
    return batch.copy_(samples)


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """The ``out`` of those who bring no memory."""
    return torch.empty(shape, dtype=dtype)


def _batched(structure: Structure) -> Structure | None:
    """Tuples become lists, named tuples and dicts stay."""
    if not isinstance(structure, Branch):
        return structure
    children = [child for child in map(_batched, structure.children) if child is not None]
    if len(children) < len(structure.children) or not children:
        return None
    if structure.type in (tuple, list):
        return Branch("list", list, (), tuple(children))
    if structure.type is dict or structure.kind == "namedtuple":
        return structure._replace(children=tuple(children))
    return None


def _sequences(structure: Structure, parent: type) -> list[type]:
    """``default_collate`` transposes sequences into tuples."""
    if not isinstance(structure, Branch):
        return [parent]
    kind = list if structure.kind == "mapping" else tuple
    return [found for child in structure.children for found in _sequences(child, kind)]
