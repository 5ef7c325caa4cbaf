"""Arguments and results as bytes: what tells two calls apart, and what gives a result again as it was."""

from __future__ import annotations

import importlib
import io
import pickle
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePath
from typing import Any, Final

from hotloop.state.stored import attribute

_PROTOCOL: Final = 5
_ATOMS: Final = frozenset([type(None), bool, int, float, str, bytes, complex])


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
        if isinstance(value, type) or value is _leaf or type(value) is complex or is_image(value):
            return NotImplemented
        numpy: Any = sys.modules.get("numpy")
        number = numpy is not None and isinstance(value, numpy.generic)
        if not (number or is_array(value) or is_tensor(value)):
            raise Unpackable(f"a {type(value).__name__}")
        if getattr(value, "requires_grad", False) or getattr(value, "__dict__", None):
            raise Unpackable("a tensor with a gradient, or with attributes of its own")
        layouts = importlib.import_module("hotloop.feed.layout")
        layout, (payload,) = layouts.encode(value)
        (field,) = layout.fields
        flat = value.is_contiguous() if is_tensor(value) else value.flags.c_contiguous
        if field.kind == layouts.PICKLED or not (flat or "@" in field.dtype):
            raise Unpackable(f"a {type(value).__name__} that is no plain one, or a part of another")
        return _leaf, (tuple(field), pickle.PickleBuffer(payload))


def _leaf(field: tuple[Any, ...], data: Any) -> Any:
    layouts: Any = importlib.import_module("hotloop.feed.layout")
    memory = sys.modules["numpy"].frombuffer(data, "uint8")
    return layouts.read_leaf(layouts.Field(*field), memory, copy=True)


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
    return pickle.loads(data)  # what this process, or one it was forked from, wrote  # nosec B301


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
    comparing = importlib.import_module("hotloop.feed.layout")
    return not comparing.differences(comparing.snapshot(one), comparing.snapshot(other))


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
        palette = None if value.palette is None else (value.palette.mode, bytes(value.palette.palette))
        return "image", value.mode, value.size, value.tobytes(), palette
    if isinstance(value, torch.Tensor):  # on a device, of another layout or class
        return ()
    if numpy is not None and isinstance(value, numpy.ndarray):
        held = value.tolist() if value.dtype.hasobject else value.tobytes()
        return "array", type(value).__qualname__, value.dtype.str, value.shape, value.strides, held
    if isinstance(value, PurePath):
        return "path", type(value).__name__, str(value)
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
