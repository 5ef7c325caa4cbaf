"""A batch of any kind into a slot and out again, with the bytes of its tensors left in place.

Tensors that were stacked straight into the slot are not copied; others are, once. The rest is pickled, and
comes out as what it was: named tuples, dataclasses, the user's own classes.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hotloop.feed.arena import Arena, extent_of, tensor_at
from hotloop.feed.layout import DTYPES, is_plain

#: Arrays up to this many bytes travel inside the pickle.
_INSIDE_BYTES = 256
#: Stands for the whole slot among a pickle's buffers. Writable, or pickle would hand out read-only views.
_SLOT = pickle.PickleBuffer(bytearray(1))
_NAMES = {dtype: name for name, dtype in DTYPES.items()}

#: Offset and size of every buffer of a pickle in the slot (``None`` for the slot itself).
Spans = tuple[tuple[int, int] | None, ...]


class _Packer(pickle.Pickler):
    """Holds nothing that holds it: its memo has the batch, which must go when the packer does."""

    def __init__(self, file: io.BytesIO, placer: _Placer) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL, buffer_callback=placer.buffer)
        self._place = placer.tensor

    def reducer_override(self, value: Any) -> Any:
        if type(value) is torch.Tensor and is_plain(value):
            return _tensor, (_SLOT, *self._place(value))
        return NotImplemented


class _Placer:
    def __init__(self, arena: Arena) -> None:
        self.spans: list[tuple[int, int] | None] = []
        self._arena = arena

    def tensor(self, tensor: torch.Tensor) -> tuple[Any, ...]:
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
            offset = self._arena.place(tensor.data_ptr(), extent * size)
        return offset, name, shape, stride

    def buffer(self, buffer: pickle.PickleBuffer) -> bool:
        if buffer is _SLOT:
            self.spans.append(None)
            return False
        payload = np.frombuffer(buffer.raw(), np.uint8)
        if payload.nbytes <= _INSIDE_BYTES:
            return True
        self.spans.append((self._arena.place(payload.ctypes.data, payload.nbytes), payload.nbytes))
        return False


def pack(batch: Any, arena: Arena) -> tuple[bytes, Spans]:
    """Put a batch's bytes into the arena's open slot; the rest of it, and where its bytes lie."""
    placer, file = _Placer(arena), io.BytesIO()
    _Packer(file, placer).dump(batch)
    return file.getvalue(), tuple(placer.spans)


def unpack(meta: bytes, spans: Spans, memory: NDArray[np.uint8] | None) -> Any:
    """The batch; its tensors and arrays are views of ``memory`` that keep its base alive."""
    if memory is None:
        return pickle.loads(meta, buffers=[b"" for _ in spans])  # nosec B301
    buffers = [memory if span is None else memory[span[0] : span[0] + span[1]] for span in spans]
    return pickle.loads(meta, buffers=buffers)  # nosec B301


def _tensor(
    memory: Any, offset: int, name: str, shape: tuple[int, ...], stride: tuple[int, ...] | None
) -> torch.Tensor:
    return tensor_at(memory, offset, DTYPES[name], shape, stride)
