"""A batch of any kind into a slot and out again, with the bytes of its tensors left in place.

Tensors that were stacked straight into the slot are not copied; others are, once. A batch of dictionaries,
lists, tuples, numbers and text around tensors, as torch's collation makes them, is told as a *plan* of plain
data. Any other is pickled, and comes out as what it was: named tuples, dataclasses, the user's own classes.
"""

from __future__ import annotations

import io
import marshal
import pickle
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hotloop.feed.arena import Arena, extent_of, flat_bytes, tensor_at
from hotloop.feed.layout import DTYPES, is_plain

#: Arrays up to this many bytes travel inside the pickle.
_INSIDE_BYTES = 256
#: Stands for the whole slot among a pickle's buffers. Writable, or pickle would hand out read-only views.
_SLOT = pickle.PickleBuffer(bytearray(1))
_NAMES = {dtype: name for name, dtype in DTYPES.items()}

#: Offset and size of every buffer of a pickle in the slot (``None`` for the slot itself); None with a plan.
Spans = tuple[tuple[int, int] | None, ...] | None

#: What a tuple in a plan begins with; whatever else is in a plan stands for itself.
_TENSOR, _LIST, _TUPLE, _DICT = range(4)
_PLAIN = frozenset({str, bytes, bool, int, float, complex, type(None)})


class _BeyondPlanError(Exception):
    """A batch that a plan cannot tell."""


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
        self._placed: dict[int, tuple[Any, ...]] = {}
        self._seen: set[int] = set()

    def plan(self, value: Any) -> Any:
        """What a batch is made of, its tensors lying in the slot afterwards.

        Raises:
            _BeyondPlanError: it has something of another kind in it, or the same object twice.
        """
        kind = type(value)
        if kind in _PLAIN:
            return value
        number = id(value)
        if number in self._seen:
            raise _BeyondPlanError
        self._seen.add(number)
        if kind is torch.Tensor and is_plain(value):
            self._placed[number] = found = self._place(value)
            return _TENSOR, *found
        if kind is list:
            if _PLAIN.issuperset(map(type, value)):
                return value
            return _LIST, [self.plan(child) for child in value]
        if kind is tuple:
            return _TUPLE, [self.plan(child) for child in value]
        if kind is dict and _PLAIN.issuperset(map(type, value)):
            return _DICT, {key: self.plan(child) for key, child in value.items()}
        raise _BeyondPlanError

    def tensor(self, tensor: torch.Tensor) -> tuple[Any, ...]:
        """Offset, dtype, shape and strides (None: row-major) of a tensor that lies in the slot afterwards."""
        return self._placed.get(id(tensor)) or self._place(tensor)

    def _place(self, tensor: torch.Tensor) -> tuple[Any, ...]:
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
        payload = flat_bytes(buffer.raw())
        if payload.nbytes <= _INSIDE_BYTES:
            return True
        self.spans.append((self._arena.place(payload.ctypes.data, payload.nbytes), payload.nbytes))
        return False


def pack(batch: Any, arena: Arena) -> tuple[bytes, Spans]:
    """Put a batch's bytes into the arena's open slot; the rest of it, and where its bytes lie."""
    placer = _Placer(arena)
    try:
        return marshal.dumps(placer.plan(batch)), None
    except _BeyondPlanError:
        file = io.BytesIO()
    _Packer(file, placer).dump(batch)
    return file.getvalue(), tuple(placer.spans)


def unpack(meta: bytes, spans: Spans, memory: NDArray[np.uint8] | None) -> Any:
    """The batch; its tensors and arrays are views of ``memory`` that keep its base alive."""
    if spans is None:
        return _built(marshal.loads(meta), memory)
    if memory is None:
        return pickle.loads(meta, buffers=[b"" for _ in spans])
    buffers = [memory if span is None else memory[span[0] : span[0] + span[1]] for span in spans]
    return pickle.loads(meta, buffers=buffers)


def _built(plan: Any, memory: NDArray[np.uint8] | None) -> Any:
    if type(plan) is not tuple:
        return plan
    kind = plan[0]
    if kind == _TENSOR:
        return _tensor(memory, *plan[1:])
    if kind == _DICT:
        return {key: _built(child, memory) for key, child in plan[1].items()}
    children = [_built(child, memory) for child in plan[1]]
    return children if kind == _LIST else tuple(children)


def _tensor(
    memory: Any, offset: int, name: str, shape: tuple[int, ...], stride: tuple[int, ...] | None
) -> torch.Tensor:
    return tensor_at(memory, offset, DTYPES[name], shape, stride)
