"""A batch of any kind into a slot and out again: pickled, with the bytes of tensors and arrays left in place.

Tensors that were stacked straight into the slot are not copied; others are, once. Whatever pickle can carry
comes out as what it was: dictionaries, named tuples, dataclasses, the user's own classes.
"""

from __future__ import annotations

import io
import math
import pickle
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hotloop.feed.arena import Arena, flat_bytes
from hotloop.feed.layout import DTYPES

#: Arrays up to this many bytes travel inside the pickle.
_INSIDE_BYTES = 256
#: Stands for the whole slot among a pickle's buffers. Writable, or pickle would hand out read-only views.
_SLOT = pickle.PickleBuffer(bytearray(1))
_NAMES = {dtype: name for name, dtype in DTYPES.items()}

#: Offset and size of every buffer in the slot; ``None`` for the slot itself.
Spans = tuple[tuple[int, int] | None, ...]


class _Packer(pickle.Pickler):
    """Holds nothing that holds it: its memo has the batch, which must go when the packer does."""

    def __init__(self, file: io.BytesIO, placer: _Placer) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL, buffer_callback=placer.buffer)
        self._place = placer.tensor

    def reducer_override(self, value: Any) -> Any:
        if type(value) is torch.Tensor and _is_plain(value):
            return _tensor, (_SLOT, *self._place(value))
        return NotImplemented


class _Placer:
    def __init__(self, arena: Arena) -> None:
        self.spans: list[tuple[int, int] | None] = []
        self._arena = arena

    def tensor(self, tensor: torch.Tensor) -> tuple[int, str, tuple[int, ...], tuple[int, ...] | None]:
        """Offset, dtype, shape and strides (None: row-major) of a tensor that lies in the slot afterwards."""
        shape, name, count = tuple(tensor.shape), _NAMES[tensor.dtype], tensor.numel()
        if not count:
            return 0, name, shape, None
        stride, extent = None, count
        if not tensor.is_contiguous():
            stride = tensor.stride()
            extent = extent_of(shape, stride)
        size = tensor.element_size()
        offset = self._arena.find(tensor.data_ptr(), extent * size)
        if offset is None:
            if extent > count:  # a view with gaps: without them
                tensor, stride, extent = tensor.contiguous(), None, count
            flat = tensor.as_strided((extent,), (1,)).view(torch.uint8)
            offset = self._arena.place(flat.numpy())
        return offset, name, shape, stride

    def buffer(self, buffer: pickle.PickleBuffer) -> bool:
        if buffer is _SLOT:
            self.spans.append(None)
            return False
        payload = flat_bytes(buffer.raw())
        if payload.nbytes <= _INSIDE_BYTES:
            return True
        self.spans.append((self._arena.place(payload), payload.nbytes))
        return False


def pack(batch: Any, arena: Arena) -> tuple[bytes, Spans]:
    """Put a batch's bytes into the arena's open slot; the rest of it, and where its bytes lie."""
    file = io.BytesIO()
    placer = _Placer(arena)
    _Packer(file, placer).dump(batch)
    return file.getvalue(), tuple(placer.spans)


def unpack(meta: bytes, spans: Spans, memory: NDArray[np.uint8] | None) -> Any:
    """The batch; its tensors and arrays are views of ``memory`` that keep its base alive."""
    if memory is None:
        return pickle.loads(meta, buffers=[b"" for _ in spans])
    buffers = [memory if span is None else memory[span[0] : span[0] + span[1]] for span in spans]
    return pickle.loads(meta, buffers=buffers)


def extent_of(shape: tuple[int, ...], stride: tuple[int, ...]) -> int:
    """How many elements lie between the first and the last of a strided tensor, both counted."""
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))


def _is_plain(tensor: torch.Tensor) -> bool:
    """Dense, on the host, outside any graph: bytes and strides are all there is to it."""
    return (
        tensor.layout is torch.strided
        and not tensor.is_nested
        and tensor.device.type == "cpu"
        and not tensor.requires_grad
        and not tensor.is_quantized
        and not tensor.is_neg()
        and not tensor.is_conj()
    )


def _tensor(
    memory: NDArray[np.uint8], offset: int, name: str, shape: tuple[int, ...], stride: tuple[int, ...] | None
) -> torch.Tensor:
    dtype, count = DTYPES[name], math.prod(shape)
    if not count:
        return torch.empty(shape, dtype=dtype)
    if stride is None:
        return torch.frombuffer(memory, dtype=dtype, count=count, offset=offset).view(shape)
    extent = extent_of(shape, stride)
    return torch.frombuffer(memory, dtype=dtype, count=extent, offset=offset).as_strided(shape, stride)
