"""Many rows made one tensor: what ``torch.stack([torch.tensor(row) for row in rows])`` gives, converted once.

Torch takes some microseconds for each tensor that it makes of a list or an array. Rows of plain numbers, and
arrays that are alike, are kept as such until all are there; where a row is anything else, or unlike those
before it, torch converts each by itself as it would have done. Each is read when torch would have read it,
so that one whose memory is written to again gives the same.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Final

import numpy as np
import torch

Convert = Callable[..., torch.Tensor]
#: What all rows must have in common: the code of an array of numbers, or numpy's type and shape; the type of
#: the tensor; whether it shares the memory of the row.
_Kind = tuple[Any, torch.dtype, bool]

#: Bytes of an array from which on the making of a tensor costs nothing beside the copying.
_LARGE: Final = 1 << 14
_FLOATS: Final = (torch.float32, torch.float64)
#: Numbers that torch reads as the double that Python makes of them, where floats are asked for.
_AS_DOUBLE: Final = frozenset([float, int, bool, np.float64, np.float32, np.int64, np.int32])
#: Where no type is asked for: what an array holds such numbers as, and what torch does; None: its default.
_NUMBERS: Final[dict[type, tuple[str, torch.dtype | None]]] = {
    float: ("d", None), np.float64: ("d", torch.float64), np.float32: ("d", torch.float32),
    int: ("q", torch.int64), np.int64: ("q", torch.int64), bool: ("q", torch.bool),
}  # fmt: skip
_HELD: Final = {"d": torch.float64, "q": torch.int64}
_ARRAYS: Final = {
    np.dtype(np.float32): torch.float32, np.dtype(np.float64): torch.float64,
    np.dtype(np.int64): torch.int64, np.dtype(np.int32): torch.int32, np.dtype(np.int16): torch.int16,
    np.dtype(np.uint8): torch.uint8, np.dtype(np.bool_): torch.bool,
}  # fmt: skip
_OLD: Final = {"FloatTensor": torch.float32, "DoubleTensor": torch.float64, "LongTensor": torch.int64}


def stacked(
    convert: Convert, rows: Iterable[Any], *, to: torch.dtype | None = None, **options: Any
) -> torch.Tensor:
    """What ``torch.stack([convert(row, **options) for row in rows])`` gives, in one conversion.

    ``convert`` is ``torch.tensor``, ``torch.as_tensor``, ``torch.FloatTensor`` or their like; with ``to``
    each tensor is turned to that type. ``rows`` may be a generator: what it does from one row to the next
    happens when it would have happened.
    """
    kept = Rows(convert, to=to, **options)
    kept.extend(rows)
    return kept.stacked()


def concatenated(
    convert: Convert, rows: Iterable[Any], *, to: torch.dtype | None = None, **options: Any
) -> torch.Tensor:
    """What ``torch.cat([convert(row, **options) for row in rows])`` gives, in one conversion."""
    kept = Rows(convert, to=to, **options)
    kept.extend(rows)
    return kept.concatenated()


def converted(convert: Convert, rows: Any, **options: Any) -> torch.Tensor:
    """What ``convert(rows, **options)`` gives; a list of arrays, which torch reads number by number, is
    gathered by numpy before, and lists of as many numbers each are by the interpreter.
    """
    if type(rows) in (list, tuple) and rows and type(rows[0]) in (list, tuple):
        kept = Rows(convert, **options)
        return kept.stacked() if kept.keeps_all(rows) else convert(rows, **options)
    if type(rows) in (list, tuple) and rows and all(type(row) is np.ndarray and row.shape for row in rows):
        how = _How.of(convert, options)
        kind = how.of_array(rows[0], large=True) if how is not None and how.lists else None
        if kind is not None and all((row.dtype, row.shape) == kind[0] for row in rows):
            rounds_twice = kind[0][0] == np.int64 and kind[1] in _FLOATS
            if not rounds_twice:
                return _placed(torch.from_numpy(np.array(rows)), kind[1], options.get("device"))
    return convert(rows, **options)


class _How:
    """How torch converts a row, where its type tells that."""

    def __init__(self, name: str, dtype: torch.dtype | None, to: torch.dtype | None, device: Any) -> None:
        self.dtype = dtype  # asked for; None: the row's own
        self.to, self.device = to, device
        self.lists = name != "from_numpy"
        self.scalars = name in ("tensor", "as_tensor")
        self.copies = name == "tensor" or (device is not None and torch.device(device).type != "cpu")
        self.usual = torch.get_default_dtype()

    @classmethod
    def of(cls, convert: Convert, options: dict[str, Any], to: torch.dtype | None = None) -> _How | None:
        """None where torch alone knows: another function or option, or a mode that has a say in it."""
        name = _names().get(convert)
        if name is None or not options.keys() <= {"dtype", "device"}:
            return None
        if options and name in (*_OLD, "from_numpy"):
            return None
        if _modes()[1:] != (0, 0, "cpu") or torch.compiler.is_compiling():
            return None
        device = options.get("device")
        if device is not None and torch.device(device).type not in ("cpu", "cuda"):
            return None
        return cls(name, _OLD.get(name, options.get("dtype")), to, device)

    def of_numbers(self, kinds: set[type]) -> _Kind | None:
        """The kind of a row of numbers of these types; None where that is torch's to say."""
        if self.dtype is None:
            code, made = _NUMBERS.get(next(iter(kinds)), ("", None)) if len(kinds) == 1 else ("", None)
            dtype = made or self.usual
        else:
            dtype = self.dtype
            whole = dtype is torch.int64 and kinds <= {int, np.int64}
            code = "d" if dtype in _FLOATS and kinds <= _AS_DOUBLE else "q" if whole else ""
        if not code or (code == "d" and dtype not in _FLOATS):
            return None
        return (code, dtype, False) if self._turns(dtype) else None

    def of_array(self, row: np.ndarray[Any, Any], *, large: bool = False) -> _Kind | None:
        """The kind of an array; None where that is torch's to say, or as fast."""
        own = _ARRAYS.get(row.dtype)
        if own is None or not row.nbytes or (row.nbytes >= _LARGE and not large):
            return None
        if not row.flags.c_contiguous or not row.flags.writeable:
            return None
        dtype = self.dtype or own
        widened = dtype is torch.int64 and own not in (*_FLOATS, torch.bool)
        if not (dtype is own or dtype in _FLOATS or widened) or not self._turns(dtype):
            return None
        shares = not self.copies and dtype is own and self.to in (None, own)
        return (row.dtype, row.shape), dtype, shares

    def _turns(self, dtype: torch.dtype) -> bool:
        """Whether ``to`` makes the same of all as of each: of floats that no integer is it may not."""
        return self.to is None or self.to is dtype or self.to in _FLOATS


class Rows:
    """Rows to be one tensor: ``append`` each, then take them ``stacked`` or ``concatenated``."""

    def __init__(self, convert: Convert, *, to: torch.dtype | None = None, **options: Any) -> None:
        self._convert, self._to, self._options = convert, to, options
        self._how = _How.of(convert, options, to)
        self._modes = _modes()  # in which that holds
        self._kind: _Kind | None = None  # of all that are kept as they are
        self._kinds: set[type] = set()  # of the numbers of the last row
        self._lengths: list[int] = []  # of rows of numbers, -1 of a number
        self._numbers: array[Any] = array("d")
        self._arrays: list[np.ndarray[Any, Any]] = []
        self._made: list[torch.Tensor] | None = None  # all rows, where torch has to make them

    def append(self, row: Any) -> None:
        """Add a row. Raises what ``convert`` raises."""
        if self._made is None:
            if self._how is not None and _modes() == self._modes and self._keeps(row, self._how):
                return
            self._made = list(self._each())
        tensor = self._convert(row, **self._options)
        self._made.append(tensor if self._to is None else tensor.to(self._to))

    def extend(self, rows: Iterable[Any]) -> None:
        """Add all of them."""
        begins = self._kind is None and self._made is None
        if begins and isinstance(rows, list | tuple) and self.keeps_all(rows):
            return
        for row in rows:
            self.append(row)

    def stacked(self) -> torch.Tensor:
        """What ``torch.stack`` makes of the rows."""
        if self._made is None and self._arrays:
            return self._placed(torch.from_numpy(np.array(self._arrays)))
        if self._made is None and len(set(self._lengths)) == 1:
            flat = self._flat()
            return self._placed(flat.view(len(self._lengths), -1) if self._lengths[0] >= 0 else flat)
        return torch.stack(list(self._each()) if self._made is None else self._made)

    def concatenated(self) -> torch.Tensor:
        """What ``torch.cat`` makes of the rows."""
        if self._made is None and self._arrays and self._arrays[0].shape:
            return self._placed(torch.from_numpy(np.concatenate(self._arrays)))
        if self._made is None and self._lengths and -1 not in self._lengths:
            return self._placed(self._flat())
        return torch.cat(list(self._each()) if self._made is None else self._made)

    def keeps_all(self, rows: list[Any] | tuple[Any, ...]) -> bool:
        """Keep lists of as many numbers each, all at once: nothing runs from one row to the next. Whether
        they are kept.
        """
        if self._how is None or type(rows) not in (list, tuple):
            return False
        if set(map(type, rows)) not in ({list}, {tuple}) or len(set(map(len, rows))) > 1:
            return False
        flat = list(chain.from_iterable(rows))
        kinds = set(map(type, flat))
        kind = self._how.of_numbers(kinds) if kinds and self._how.lists else None
        if kind is None:
            return False
        numbers = array(kind[0])
        try:
            numbers.fromlist(flat)
        except (OverflowError, TypeError):
            return False
        self._kind, self._numbers, self._lengths = kind, numbers, [len(rows[0])] * len(rows)
        return True

    def _keeps(self, row: Any, how: _How) -> bool:
        """Keep a row as it is; False where it is torch's to convert."""
        of = type(row)
        if of is np.ndarray:
            kind = how.of_array(row)
            if kind is None or not self._fits(kind):
                return False
            self._arrays.append(row if kind[2] else row.copy())
            return True
        listed = of is list or of is tuple
        if not (how.lists if listed else how.scalars):
            return False
        kinds = set(map(type, row)) if listed else {of}
        if of is np.int64 and how.dtype in _FLOATS:
            return False  # one by itself is no double on its way
        if not kinds or kinds != self._kinds:  # else as the one before
            kind = how.of_numbers(kinds) if kinds else None
            if kind is None or not self._fits(kind):
                return False
        try:
            self._numbers.fromlist(row if of is list else list(row) if listed else [row])
        except (OverflowError, TypeError):
            return False
        self._kinds = kinds
        self._lengths.append(len(row) if listed else -1)
        return True

    def _fits(self, kind: _Kind) -> bool:
        """Whether a row is of the kind of those before it."""
        if self._kind is None:
            self._kind = kind
            if isinstance(kind[0], str):
                self._numbers = array(kind[0])
        return kind == self._kind

    def _each(self) -> Iterator[torch.Tensor]:
        """Each row that is kept, as the tensor that torch would have made of it."""
        for row in self._arrays:
            tensor = torch.from_numpy(row)
            yield tensor if self._kind is not None and self._kind[2] else self._placed(tensor)
        if self._lengths:
            rows = self._flat().split([abs(length) for length in self._lengths])
            for row, length in zip(rows, self._lengths, strict=True):
                yield self._placed(row if length >= 0 else row[0])

    def _flat(self) -> torch.Tensor:
        return torch.frombuffer(self._numbers, dtype=_HELD[self._numbers.typecode])

    def _placed(self, tensor: torch.Tensor) -> torch.Tensor:
        assert self._kind is not None
        made = _placed(tensor, self._kind[1], self._options.get("device"))
        return made if self._to is None else made.to(self._to)


def _placed(tensor: torch.Tensor, dtype: torch.dtype, device: Any) -> torch.Tensor:
    return tensor.to(device=device, dtype=dtype, copy=True)


def _modes() -> tuple[torch.dtype, int, int, str]:
    """What else has a say in how torch converts: the type of floats, modes, the device of what is made."""
    core = torch._C
    functions, dispatches = core._len_torch_function_stack(), core._len_torch_dispatch_stack()
    return torch.get_default_dtype(), functions, dispatches, str(core._get_default_device())


def _names() -> dict[Any, str]:
    return {getattr(torch, name): name for name in ("tensor", "as_tensor", "from_numpy", *_OLD)}
