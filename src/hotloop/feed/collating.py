"""Samples become a batch: torch's own collation, with tensors stacked straight into memory at hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import default_collate
from torch.utils.data._utils import collate as torch_collate

from hotloop import fast
from hotloop.feed import layout
from hotloop.feed.layout import Field, is_plain
from hotloop.feed.tree import Branch, Structure, unflatten

#: From this size of a row on, one copy after the other beats numpy's indexing, which copies twice.
_LOOPED_BYTES = 8192


#: Batches from this size on are written past the processor's caches, as ``_fast.c`` has it.
_STREAMED_BYTES = 4 << 20


def gather(source: NDArray[np.uint8], starts: NDArray[np.int64], into: torch.Tensor, size: int) -> None:
    """Fill ``into`` with the ``size`` bytes that begin at each of ``starts`` in ``source``.

    ``source`` and ``starts`` are flat. Compiled (``_fast.c``), the interpreter is free until the last row is
    there, and batches larger than a processor's cache are written past it: a third faster than plain copies.

    Raises:
        ValueError: ``into`` has another size, or its rows do not follow each other.
        IndexError: a row lies outside of ``source``.
    """
    if into.nbytes != size * len(starts) or not into.is_contiguous():
        raise ValueError(f"{len(starts)} rows of {size} bytes do not fill {tuple(into.shape)} {into.dtype}")
    if fast.gather is not None:
        fast.gather(into.data_ptr(), size, source, starts)
        return
    rows = into.reshape(-1).view(torch.uint8).numpy().reshape(len(starts), size)
    if size >= _LOOPED_BYTES:
        for row, start in zip(rows, starts.tolist(), strict=True):
            row[:] = source[start : start + size]
    else:
        overlapping = np.ndarray((source.size - size + 1, size), np.uint8, source, 0, (1, 1))
        rows[:] = overlapping[starts]


def stack(tensors: Sequence[torch.Tensor], into: torch.Tensor) -> None:
    """``torch.stack(tensors, out=into)``, of large batches in two thirds of the time."""
    first = tensors[0]
    if (
        fast.gather is not None
        and into.nbytes >= _STREAMED_BYTES
        and all(
            type(one) is torch.Tensor
            and one.dtype is first.dtype
            and one.shape == first.shape
            and one.is_contiguous()
            and is_plain(one)
            for one in tensors
        )
    ):
        addresses = np.array([one.data_ptr() for one in tensors], np.int64)
        fast.gather(into.data_ptr(), first.nbytes, None, addresses)
    else:
        torch.stack(tuple(tensors), 0, out=into)


#: Gives an uninitialised host tensor of this shape and dtype to fill.
Out = Callable[[tuple[int, ...], torch.dtype], torch.Tensor]

_torch_stack = torch_collate.collate_tensor_fn


def stacking(out: Callable[[int], Out | None]) -> Callable[..., Any]:
    """A ``collate_tensor_fn`` that stacks into the memory of ``out(num_bytes)``.

    Where that is None, or the tensors are unusual, it is torch's own. As in torch's workers, a batch has the
    dtype of its first sample.
    """

    def collate_tensor_fn(batch: Sequence[torch.Tensor], *, collate_fn_map: Any = None) -> Any:
        first = batch[0]
        if not (type(first) is torch.Tensor and is_plain(first)):
            return _torch_stack(batch, collate_fn_map=collate_fn_map)
        memory = out(len(batch) * first.numel() * first.element_size())
        if memory is None:
            return torch.stack(tuple(batch), 0)
        into = memory((len(batch), *first.shape), first.dtype)
        stack(batch, into)
        return into

    return collate_tensor_fn


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
