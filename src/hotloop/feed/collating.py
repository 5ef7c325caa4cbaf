"""Samples become a batch: torch's own collation, with tensors stacked straight into memory at hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.data._utils import collate as torch_collate

from hotloop.feed.layout import is_plain
from hotloop.feed.rows import stack

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
        if not _is_usual(first):
            return _torch_stack(batch, collate_fn_map=collate_fn_map)
        memory = out(len(batch) * first.numel() * first.element_size())
        if memory is None:
            return torch.stack(tuple(batch), 0)
        into = memory((len(batch), *first.shape), first.dtype)
        stack(batch, into)
        return into

    return collate_tensor_fn


def _is_usual(tensor: torch.Tensor) -> bool:
    return type(tensor) is torch.Tensor and is_plain(tensor)
