"""Batches whose fields of few different values leave a worker as bytes, and become what they were elsewhere.

An image that was made of bytes (``ToTensor``, and ``Normalize`` behind it) has at most 256 values a channel.
Such a field travels as the numbers of its values in a table (:mod:`hotloop.feed.palette`), with the table
beside them; whoever has both looks the values up, bit for bit. Each worker learns its own tables. A batch
that does not fit, and whatever is not known to come through unchanged, travels as it is.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, get_worker_info
from torch.utils.data._utils import collate as torch_collate

from hotloop.feed import palette
from hotloop.feed.layout import is_plain
from hotloop.feed.palette import Palette

#: Fields of a batch below this many bytes are not worth it.
_WORTH_BYTES: Final = 1 << 16
#: A dimension of at most so many is one of channels.
_MOST_CHANNELS: Final = 16
#: Batches in a row that did not fit, after which a field is left alone.
_MOST_MISSES: Final = 8
#: Tables kept by who looks values up: several for each worker, while they learn.
_MOST_TABLES: Final = 256
_LEAVES: Final = frozenset(
    [torch.Tensor, np.ndarray, str, bytes, bool, int, float, complex, type(None)]
)  # and numpy's numbers


class Coded(NamedTuple):
    """A field on its way: the number of each value, in memory's order, and what they mean, pickled."""

    numbers: torch.Tensor
    legend: bytes


class Legend(NamedTuple):
    """What the numbers of a field mean; ``inner`` values of each channel follow each other."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    channels: int
    inner: int
    table: bytes


class Coding:
    """A ``collate_fn`` that codes the batches of another one, in worker processes."""

    def __init__(self, collate_fn: Callable[[Any], Any]) -> None:
        self._collate_fn = collate_fn
        self._fields: dict[int, _Field] = {}
        self._place = 0

    def __call__(self, samples: Any) -> Any:
        """The batch, with :class:`Coded` in the place of fields that fit."""
        if get_worker_info() is None:
            return self._collate_fn(samples)
        if self._collate_fn is torch_collate.default_collate and type(samples) is list:
            table = torch_collate.default_collate_fn_map
            stack = table.get(torch.Tensor)
            if not _is_known(samples[0]) or not _only_stacks(stack):
                return self._collate_fn(samples)
            self._place = 0
            coding = {**table, torch.Tensor: self._collate_tensors}
            return torch_collate.collate(samples, collate_fn_map=coding)
        return self._coded(self._collate_fn(samples))

    def _collate_tensors(self, tensors: Sequence[torch.Tensor], *, collate_fn_map: Any = None) -> Any:
        """Torch's collation of one field, of samples or of their numbers."""
        place, self._place = self._place, self._place + 1
        first = tensors[0]
        stack = torch_collate.default_collate_fn_map[torch.Tensor]
        usual = all(
            type(one) is torch.Tensor
            and one.dtype is first.dtype in palette.DTYPES
            and is_plain(one)
            and one.shape == first.shape
            for one in tensors
        )
        if not usual or first.nbytes * len(tensors) < _WORTH_BYTES:
            return stack(tensors, collate_fn_map=collate_fn_map)
        rows = [one.contiguous().view(-1) for one in tensors]
        shape = tuple(first.shape)
        found = self._field(place).encode(rows, *_channels(shape, range(len(shape))))
        if found is None:
            return stack(tensors, collate_fn_map=collate_fn_map)
        numbers, channels, inner, table = found
        shape = (len(tensors), *shape)
        stride = torch.empty(shape, device="meta").stride()
        legend = Legend(first.dtype, shape, stride, channels, inner, table)
        return Coded(stack(list(numbers), collate_fn_map=collate_fn_map), pickle.dumps(legend))

    def _coded(self, batch: Any) -> Any:
        """A batch that somebody else's collation made."""
        if not _is_known(batch):
            return batch
        tensors = [leaf for leaf in _leaves(batch) if type(leaf) is torch.Tensor]
        shared = [one.untyped_storage().data_ptr() for one in tensors if one.layout is torch.strided]
        places = iter(range(len(tensors)))

        def code(leaf: Any) -> Any:
            if type(leaf) is not torch.Tensor:
                return leaf
            place = next(places)
            if not _is_dense(leaf) or leaf.nbytes < _WORTH_BYTES or leaf.dtype not in palette.DTYPES:
                return leaf
            if shared.count(leaf.untyped_storage().data_ptr()) > 1:
                return leaf  # what is done to one in place is seen in the other
            return self._code_whole(leaf, self._field(place))

        return _mapped(code, batch)

    def _code_whole(self, tensor: torch.Tensor, field: _Field) -> Any:
        order = _memory_order(tensor)
        flat = tensor.permute(order).view(-1)
        shape = tuple(tensor.shape[dim] for dim in order)
        found = field.encode([flat], *_channels(shape, order))
        if found is None:
            return tensor
        numbers, channels, inner, table = found
        legend = Legend(tensor.dtype, tuple(tensor.shape), tensor.stride(), channels, inner, table)
        stack = torch_collate.default_collate_fn_map[torch.Tensor]
        return Coded(stack(list(numbers.view(len(tensor), -1))), pickle.dumps(legend))

    def _field(self, place: int) -> _Field:
        return self._fields.setdefault(place, _Field())


class _Field:
    """One field of the batches that a worker makes: its palette, and whether it is worth trying."""

    def __init__(self) -> None:
        self._palette: Palette | None = None
        self._misses = 0
        self._memory = torch.empty(0, dtype=torch.uint8)

    def encode(
        self, rows: Sequence[torch.Tensor], channels: int, inner: int
    ) -> tuple[torch.Tensor, int, int, bytes] | None:
        """Numbers of rows of values, valid until the next call; or None, where they do not fit.

        One table for all of them is tried, then one for each of the channels.
        """
        if self._misses >= _MOST_MISSES:
            return None
        size = rows[0].numel()
        if self._memory.numel() < len(rows) * size:
            self._memory = torch.empty(len(rows) * size, dtype=torch.uint8)
        numbers = self._memory[: len(rows) * size].view(len(rows), size)
        for tried in self._tries(rows[0].dtype, channels):
            step = inner if tried.channels > 1 else size
            if all(tried.encode(row, into, step) for row, into in zip(rows, numbers, strict=True)):
                self._palette, self._misses = tried, 0
                return numbers, tried.channels, step, tried.table()
        self._misses += 1
        return None

    def _tries(self, dtype: torch.dtype, channels: int) -> Iterator[Palette]:
        known = self._palette
        if known is None or known.dtype is not dtype or known.channels not in (1, channels):
            known = Palette(dtype)
        yield known.copy()
        if known.channels == 1 and channels > 1:
            yield Palette(dtype, channels)


class Lookup:
    """Makes coded batches what they were, on the device where their numbers are."""

    def __init__(self) -> None:
        self._tables: dict[tuple[bytes, torch.device], torch.Tensor] = {}
        self._legends: dict[bytes, Legend] = {}

    def __call__(self, batch: Any) -> Any:
        """The batch without :class:`Coded`."""
        return _mapped(lambda leaf: self._values(leaf) if type(leaf) is Coded else leaf, batch)

    def _values(self, coded: Coded) -> torch.Tensor:
        legend = self._legends.get(coded.legend)
        if legend is None:
            legend = pickle.loads(coded.legend)
            if len(self._legends) < _MOST_TABLES:
                self._legends[coded.legend] = legend
        device = coded.numbers.device
        table = self._tables.get((legend.table, device))
        if table is None:
            table = palette.table_of(legend.table, legend.dtype, device)
            if len(self._tables) < _MOST_TABLES:
                self._tables[legend.table, device] = table
        made = torch.empty_strided(legend.shape, legend.stride, dtype=legend.dtype, device=device)
        palette.look_up(coded.numbers, table, made, legend.inner)
        return made


class CodedBatches:
    """What a loader gives, coded in its workers; the loader itself gives what it always gave."""

    def __init__(self, loader: Any) -> None:
        if not isinstance(loader, DataLoader):
            raise TypeError(f"as_bytes needs a DataLoader, not a {type(loader).__name__}")
        self._loader = loader
        self._coding: Coding | None = None

    def why_not(self) -> str:
        """Why batches travel as they are, "" where they do not."""
        loader = self._loader
        if not loader.num_workers:
            return "num_workers=0: nothing is carried from worker to training process"
        if loader.persistent_workers:  # those that code would be others, started beside them
            return "persistent_workers=True: its workers are the loader's own, and stay"
        if type(loader).__iter__ is not DataLoader.__iter__ and not _is_ours(loader):
            return f"{type(loader).__name__} iterates in its own way"
        if "collate_fn" not in loader.__dict__:
            return f"{type(loader).__name__} makes its collate_fn itself"
        if callable(getattr(loader.dataset, "gather", None)):
            return "the dataset gives whole batches"
        return ""

    def __iter__(self) -> Iterator[Any]:
        loader = self._loader
        if self.why_not():
            return iter(loader)
        own = loader.collate_fn
        if self._coding is None or self._coding._collate_fn is not own:
            self._coding = Coding(own)
        loader.collate_fn = self._coding
        try:
            iterator: Iterator[Any] = iter(loader)
        finally:
            loader.collate_fn = own
        return iterator


def _is_ours(loader: Any) -> bool:
    return f"{type(loader).__module__}.{type(loader).__qualname__}" == "hotloop.feed.loader.Loader"


def _only_stacks(stack: Any) -> bool:
    """Whether tensors are collated by torch, or by the workers of ``hotloop.feed.Loader``."""
    return stack is torch_collate.collate_tensor_fn or stack.__module__ == "hotloop.feed.collating"


# -- batches as trees ----------------------------------------------------------------------------------------


def _children(node: Any) -> Sequence[Any] | None:
    """What is in a container of Python's own, or a named tuple; None for anything else."""
    kind = type(node)
    if kind is list or kind is tuple or _is_named(node):
        return node  # type: ignore[no-any-return]
    return list(dict.values(node)) if kind is dict or _is_watched(node) else None


def _is_named(node: Any) -> bool:
    """Whether it is a named tuple, and its fields are all there is to it."""
    named = isinstance(node, tuple) and hasattr(node, "_fields")
    return named and type(node) is not Coded and not hasattr(node, "__dict__")


def _is_watched(node: Any) -> bool:
    """Whether it is a plain dictionary, handed on by whoever watches its reads."""
    return f"{type(node).__module__}.{type(node).__qualname__}" == "hotloop.probe.tracked.TrackedBatch"


def _leaves(node: Any) -> Iterator[Any]:
    inner = _children(node)
    if inner is None:
        yield node
    else:
        for child in inner:
            yield from _leaves(child)


def _is_known(tree: Any) -> bool:
    """Whether there is nothing in it that might hold the same memory unseen, or come through another."""
    return all(type(leaf) in _LEAVES or isinstance(leaf, np.generic) for leaf in _leaves(tree))


def _mapped(function: Callable[[Any], Any], node: Any) -> Any:
    """The tree with ``function`` applied to its leaves, in order; what has none that change stays itself."""
    inner = _children(node)
    if inner is None:
        return function(node)
    made = [_mapped(function, child) for child in inner]
    if all(new is old for new, old in zip(made, inner, strict=True)):
        return node
    if isinstance(node, dict):
        return dict(zip(dict.keys(node), made, strict=True))
    return made if type(node) is list else tuple.__new__(type(node), made)


# -- how a tensor lies ---------------------------------------------------------------------------------------


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether a plain tensor's values follow each other in memory, in whichever order, with none twice."""
    if not is_plain(tensor) or tensor.dim() == 0 or tensor.numel() == 0:
        return False
    expected = 1
    for dim in reversed(_memory_order(tensor)):
        if tensor.stride(dim) != expected and tensor.shape[dim] != 1:
            return False
        expected *= tensor.shape[dim]
    return True


def _memory_order(tensor: torch.Tensor) -> list[int]:
    """Dimensions from the one with the farthest steps to the one with the shortest."""
    return sorted(range(tensor.dim()), key=lambda dim: (-tensor.stride(dim), -tensor.shape[dim], dim))


def _channels(shape: Sequence[int], order: Sequence[int]) -> tuple[int, int]:
    """Channels of a field whose dimensions lie in this order, and values of one that follow each other."""
    dims = len(shape)
    for dim in (dims - 3, dims - 1):
        at = list(order).index(dim) if dims >= 3 else -1
        if at >= 0 and 1 < shape[at] <= _MOST_CHANNELS:
            return shape[at], math.prod(shape[at + 1 :])
    return 1, math.prod(shape)
