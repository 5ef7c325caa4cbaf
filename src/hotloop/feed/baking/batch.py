"""How the fields of a bake become a batch: the one that ``default_collate`` would make of the samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import default_collate
from torch.utils.data._utils.collate import collate

from hotloop.feed import layout
from hotloop.feed.baking.manifest import Manifest
from hotloop.feed.baking.schema import Column
from hotloop.feed.collating import Out
from hotloop.feed.layout import tensor_bytes
from hotloop.feed.tree import unflatten

Bytes = NDArray[np.uint8]
Rows = NDArray[np.int64]


class _Slot:
    """Stands for one leaf while torch's collation builds the structure of a batch around it."""

    __slots__ = ("position",)

    def __init__(self, position: int) -> None:
        self.position = position


class Batch:
    """How the fields of a bake become a batch as ``default_collate`` would make it."""

    def __init__(self, skeleton: Any, dtypes: list[torch.dtype]) -> None:
        self._skeleton = skeleton
        self.dtypes = dtypes

    @classmethod
    def of(cls, manifest: Manifest) -> Batch | None:
        """None where torch's own collation of the samples must decide: it refuses, or nothing is dense."""
        schema = manifest.schema
        dtypes = [_batch_dtype(column) for column in schema.columns]
        if schema.structure is None or any(dtype is None for dtype in dtypes):
            return None
        skeleton = unflatten(schema.structure, [_Slot(k) for k in range(len(schema.leaves))])
        batch = cls(skeleton, [dtype for dtype in dtypes if dtype is not None])
        try:
            batch.build(dict.fromkeys(range(len(schema.leaves))))
        except (TypeError, ValueError, RuntimeError):  # a dataclass, for one: torch says what it thinks of it
            return None
        return batch

    def build(self, values: dict[int, Any]) -> Any:
        """The batch with these values for the leaves: a tensor, or a tuple of leaves yet to be collated."""

        def field(batch: Sequence[_Slot], *, collate_fn_map: Any = None) -> Any:
            value = values[batch[0].position]
            # Text stays as the list or tuple in which torch's collation hands it on.
            return default_collate(type(batch)(value)) if isinstance(value, tuple) else value  # type: ignore[call-arg]

        return collate([self._skeleton], collate_fn_map={_Slot: field})


def _batch_dtype(column: Column) -> torch.dtype | None:
    """What ``default_collate`` makes of such leaves; None where it has no tensor for them."""
    if column.kind == layout.TENSOR:
        return layout.DTYPES[column.dtype]
    known = {layout.INTEGER: torch.int64, layout.REAL: torch.float64, layout.BOOLEAN: torch.bool}
    if column.kind in known:
        return known[column.kind]
    try:
        return torch.from_numpy(np.empty(0, column.dtype)).dtype
    except (TypeError, ValueError):
        return None


def take(table: Bytes, rows: Rows, column: Column, dtype: torch.dtype, out: Out) -> torch.Tensor:
    """These rows of a column as one tensor, copied once into the memory that ``out`` gives."""
    batch = out((len(rows), *column.shape), dtype)
    into = tensor_bytes(batch).reshape(len(rows), column.num_bytes)
    np.take(table, rows, axis=0, out=into, mode="clip")  # "raise" would go through a buffer
    return batch


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """The ``out`` of those who bring no memory."""
    return torch.empty(shape, dtype=dtype)
