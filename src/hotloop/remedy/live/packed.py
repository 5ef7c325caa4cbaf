"""Arguments and results as bytes: what tells two calls apart, and what gives a result again as it was."""

from __future__ import annotations

import io
import os
import pickle
import struct
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePath
from typing import Any, Final

from hotloop.state.stored import attribute

_PROTOCOL: Final = 5
_ATOMS: Final = frozenset([type(None), bool, int, float, str, bytes, complex])
_LONGEST_PATH: Final = 1024
#: Items of a list whose texts may name files.
_SHORT: Final = 32


class Unpackable(Exception):  # noqa: N818 - an answer, not a failure
    """A value that cannot be given again as it was."""


def is_array(value: Any) -> bool:
    """Whether a value is numpy's own array, and its bytes are all there is to it."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray and not value.dtype.hasobject


def is_tensor(value: Any) -> bool:
    """Whether a value is torch's own tensor."""
    torch = sys.modules.get("torch")
    return torch is not None and type(value) is torch.Tensor


def is_image(value: Any) -> bool:
    """Whether a value is an image of PIL's that no file stands behind."""
    pil = sys.modules.get("PIL.Image")
    return pil is not None and type(value) is pil.Image


# -- results -------------------------------------------------------------------------------------------------


class _Results(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if any(value is one for one in _MAKERS) or _is_numpy_type(value):
            return NotImplemented
        if is_array(value):
            return _array, _of_array(value)
        if is_tensor(value):
            return _tensor, _of_tensor(value)
        if is_image(value):
            return _image, (value.mode, value.size, value.tobytes(), value.info, _palette(value))
        if type(value) is complex:
            return NotImplemented
        numpy: Any = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, numpy.dtype):
            return NotImplemented
        if numpy is not None and isinstance(value, numpy.generic):
            return _scalar, (value.dtype, value.tobytes())
        raise Unpackable(f"a {type(value).__name__}")


def packed(value: Any) -> bytes:
    """A result as bytes. Raises Unpackable."""
    for part in _parts(value):
        if type(part) in (set, frozenset):
            raise Unpackable(f"a {type(part).__name__}")  # their order may be another
    into = io.BytesIO()
    _Results(into, _PROTOCOL).dump(value)
    return into.getvalue()


def unpacked(data: memoryview) -> Any:
    """The result that was packed, made anew."""
    return pickle.loads(data)  # what this process, or one it was forked from, wrote


def mutable(value: Any) -> Iterator[Any]:
    """What of a value the script could change in place."""
    for part in _parts(value):
        if type(part) not in _ATOMS and type(part) is not tuple:
            yield part


def overlaps(result: Any, others: Iterable[Any]) -> bool:
    """Whether arrays and tensors of a result lie in the memory of others."""
    numpy = sys.modules.get("numpy")
    lie = [view for part in mutable(result) if (view := _memory(part)) is not None]
    if numpy is None or not lie:
        return False
    there = [view for other in others if (view := _memory(other)) is not None]
    return any(numpy.may_share_memory(one, other) for one in lie for other in there)


def _memory(value: Any) -> Any:
    """An array over the memory of an array or a tensor; None of anything else."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray):
        return None if value.dtype.hasobject else value
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return None
    if value.layout is not torch.strided or value.device.type != "cpu" or not value.numel():
        return None
    try:
        whole = value.detach().untyped_storage()
        return numpy.asarray(torch.tensor([], dtype=torch.uint8).set_(whole)) if numpy is not None else None
    except (RuntimeError, TypeError, NotImplementedError):  # subclasses that hold no memory of their own
        return None


def alike(one: Any, other: Any) -> bool:
    """Whether two results are the same in type, order and bits."""
    if type(one) is not type(other):
        return False
    if type(one) in (list, tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    if type(one) is dict:
        return len(one) == len(other) and all(
            alike(*keys) and alike(*values)
            for keys, values in zip(
                zip(one, other, strict=True), zip(one.values(), other.values(), strict=True), strict=True
            )
        )
    if type(one) is float:
        return struct.pack("d", one) == struct.pack("d", other)
    if type(one) in _ATOMS:
        return bool(one == other)
    return packed(one) == packed(other)


def _parts(value: Any) -> Iterator[Any]:
    """A value and all that its lists, tuples and dictionaries hold; of many plain values none."""
    todo = [value]
    seen: set[int] = set()
    while todo:
        part = todo.pop()
        yield part
        if type(part) not in (list, tuple, dict) or id(part) in seen:
            continue
        seen.add(id(part))
        for inner in (part.values(), part) if type(part) is dict else (part,):
            if not _ATOMS.issuperset(map(type, inner)):
                todo += inner


def _is_numpy_type(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, type) and issubclass(value, (numpy.generic, numpy.dtype))


def _of_array(value: Any) -> tuple[Any, ...]:
    """Its bytes in the order in which they lie, and how to find them there. Raises Unpackable."""
    numpy = sys.modules["numpy"]
    back = [axis for axis, stride in enumerate(value.strides) if stride < 0]
    ahead = numpy.flip(value, back)
    axes = sorted(range(value.ndim), key=lambda axis: (-ahead.strides[axis], axis))
    if not ahead.flags.c_contiguous:
        ahead = ahead.transpose(axes)
    else:
        axes = list(range(value.ndim))
    if value.size and not ahead.flags.c_contiguous:
        raise Unpackable("an array that is a part of another")
    data = numpy.ascontiguousarray(ahead).reshape(-1).view(numpy.uint8) if value.size else b""
    buffer = pickle.PickleBuffer(data) if value.size else b""
    return buffer, value.dtype, ahead.shape, axes, back, bool(value.flags.writeable)


def _array(data: Any, dtype: Any, shape: Any, axes: Any, back: Any, writeable: bool) -> Any:
    numpy = sys.modules["numpy"]
    lies = numpy.empty(shape, dtype)
    if lies.size:
        lies.reshape(-1).view(numpy.uint8)[:] = numpy.frombuffer(data, numpy.uint8)
    made = lies.transpose(numpy.argsort(axes)) if lies.ndim else lies
    if back:
        made = numpy.flip(made, back)
    made.flags.writeable = writeable
    return made


def _scalar(dtype: Any, data: bytes) -> Any:
    return sys.modules["numpy"].frombuffer(data, dtype)[0]


def _of_tensor(value: Any) -> tuple[Any, ...]:
    torch = sys.modules["torch"]
    if value.requires_grad:
        raise Unpackable("a tensor with a gradient")
    plain = value.layout is torch.strided and value.device.type == "cpu" and not value.is_quantized
    if not plain or value.is_inference() or value.is_conj() or value.is_neg() or value.__dict__:
        raise Unpackable("a tensor that is not a plain one in main memory")
    axes = sorted(range(value.dim()), key=lambda axis: (-value.stride(axis), axis))
    if value.is_contiguous():
        axes = list(range(value.dim()))
    lies = value.permute(axes)
    if not lies.is_contiguous():
        raise Unpackable("a tensor that is a part of another")
    data = lies.reshape(-1).view(torch.uint8).numpy() if value.numel() else None
    return pickle.PickleBuffer(data) if data is not None else b"", str(value.dtype), tuple(lies.shape), axes


def _tensor(data: Any, dtype: str, shape: Any, axes: list[int]) -> Any:
    torch: Any = sys.modules["torch"]
    lies = torch.empty(shape, dtype=getattr(torch, dtype.removeprefix("torch.")))
    if lies.numel():
        lies.reshape(-1).view(torch.uint8).copy_(torch.frombuffer(data, dtype=torch.uint8))
    return lies.permute([axes.index(axis) for axis in range(len(axes))])


def _palette(image: Any) -> Any:
    return None if image.palette is None else (image.palette.mode, bytes(image.palette.palette))


def _image(mode: str, size: Any, data: bytes, info: Any, palette: Any) -> Any:
    pil: Any = sys.modules["PIL.Image"]
    made = pil.frombytes(mode, size, data)
    if palette is not None:
        made.putpalette(palette[1], palette[0])
    made.info = info
    return made


_MAKERS: Final = (_array, _scalar, _tensor, _image, complex)


# -- arguments -----------------------------------------------------------------------------------------------


class Keys(pickle.Pickler):
    """Writes what tells a call apart; ``named`` tells what is known by its identity."""

    def __init__(self, named: Callable[[Any], Any]) -> None:
        self._into, self._named = io.BytesIO(), named
        super().__init__(self._into, _PROTOCOL)

    def bytes_of(self, values: Any) -> bytes:
        """What tells values apart."""
        self._into.seek(0)
        self._into.truncate()
        try:
            self.dump(values)
        finally:
            self.clear_memo()
        return self._into.getvalue()

    def reducer_override(self, value: Any) -> Any:
        """By content where that is all there is to it, else by identity."""
        if value is str or _is_numpy_type(value):
            return NotImplemented
        return str, (_said(value) or self._named(value),)


def _said(value: Any) -> tuple[Any, ...]:
    """The content of a value; () where it is more than its content."""
    torch: Any = sys.modules["torch"]
    numpy = sys.modules.get("numpy")
    if is_array(value):
        return "array", value.dtype.str, value.shape, value.strides, value.tobytes()
    plain = is_tensor(value) or type(value) is torch.nn.Parameter
    if plain and value.layout is torch.strided and value.device.type == "cpu":
        data = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        return (
            type(value).__name__,
            str(value.dtype),
            tuple(value.shape),
            value.stride(),
            value.requires_grad,
            data,
        )
    if is_image(value):
        return "image", value.mode, value.size, value.tobytes(), _palette(value)
    if isinstance(value, torch.Tensor):  # on a device, of another layout or class
        return ()
    if numpy is not None and isinstance(value, numpy.ndarray):
        held = value.tolist() if value.dtype.hasobject else value.tobytes()
        return "array", type(value).__qualname__, value.dtype.str, value.shape, value.strides, held
    if isinstance(value, PurePath):
        return "path", type(value).__name__, str(value), stamp(str(value))
    if numpy is not None and isinstance(value, numpy.generic) and not value.dtype.hasobject:
        return "number", value.dtype.str, value.tobytes()
    if isinstance(value, (torch.dtype, torch.device, range, slice, complex)):
        return type(value).__name__, repr(value)
    besides = attribute(value, "__dict__")
    if isinstance(value, dict):
        return type(value).__qualname__, list(value.items()), besides
    if isinstance(value, (tuple, list, set, frozenset, deque)):
        return type(value).__qualname__, list(value), besides
    return ()


def stamp(text: str) -> tuple[int, int] | None:
    """When the file of this name was written, and its size; None where there is none."""
    if len(text) > _LONGEST_PATH or "\n" in text or not ("." in text or os.sep in text):
        return None
    try:
        found = os.stat(text)
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size


def stamps(values: Iterable[Any]) -> list[tuple[int, int] | None]:
    """The same of those values that are text, and of the texts in short lists."""
    return [
        stamp(each)
        for value in values
        for each in (value if type(value) in (list, tuple) and len(value) <= _SHORT else (value,))
        if type(each) is str
    ]
