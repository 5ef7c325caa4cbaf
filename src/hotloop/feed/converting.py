"""Many rows made one tensor: what ``torch.stack([torch.tensor(row) for row in rows])`` gives, converted once.

Torch takes some microseconds for each tensor that it makes of a list or an array. Lists of plain numbers and
arrays of one type and shape are gathered by numpy first; any other rows are left to torch, one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
import torch

_FLOATS: Final = (torch.float32, torch.float64)
_OLD: Final = {"FloatTensor": torch.float32, "DoubleTensor": torch.float64, "LongTensor": torch.int64}
#: Array types that torch converts to the same values as numpy does.
_ARRAYS: Final = frozenset(
    np.dtype(name) for name in ("float32", "float64", "int64", "int32", "uint8", "bool")
)


def stacked(convert: Callable[..., torch.Tensor], rows: Iterable[Any], **options: Any) -> torch.Tensor:
    """What ``torch.stack([convert(row, **options) for row in rows])`` gives, in one conversion.

    ``convert`` is ``torch.tensor``, ``torch.as_tensor`` or ``torch.FloatTensor`` and its like; with any other
    function each row is converted by itself. ``rows`` may be a generator: each row is read when it comes.
    """
    own: list[Any] = []
    shares = convert is not torch.tensor  # the memory of an array, whatever is written to it later
    made: list[torch.Tensor] | None = None if _is_known(convert, options) else []
    for row in rows:
        if made is None and (type(row) in (list, tuple) or (_is_plain(row) and not shares)):
            own.append(row if type(row) is tuple else row.copy())
            continue
        if made is None:
            made = [convert(one, **options) for one in own]
        made.append(convert(row, **options))
    if made is None:
        dtype = options.get("dtype") or _OLD.get(convert.__name__)
        array = _gathered(own, dtype) if own else None
        if array is not None:
            if dtype is None and array.dtype == np.float64 and type(own[0]) is not np.ndarray:
                dtype = torch.get_default_dtype()
            return torch.tensor(array, dtype=dtype, device=options.get("device"))
        made = [convert(one, **options) for one in own]
    return torch.stack(made)


def _is_known(convert: Any, options: dict[str, Any]) -> bool:
    """Whether the type of a row says what torch makes of it."""
    if convert in (torch.tensor, torch.as_tensor):
        return options.keys() <= {"dtype", "device"}
    return not options and any(convert is getattr(torch, name) for name in _OLD)


def _is_plain(row: Any) -> bool:
    return type(row) is np.ndarray and row.flags.c_contiguous and row.flags.writeable and row.size > 0


def _gathered(rows: list[Any], dtype: torch.dtype | None) -> np.ndarray[Any, Any] | None:
    """All rows as one array; None where only torch knows what it makes of them."""
    kinds = set(map(type, rows))
    if kinds == {np.ndarray}:
        first = rows[0]
        alike = all(row.dtype == first.dtype and row.shape == first.shape for row in rows)
        exact = dtype is None or (dtype in _FLOATS and first.dtype.kind == "f")
        return np.array(rows) if alike and exact and first.dtype in _ARRAYS else None
    if not (kinds == {list} or kinds == {tuple}) or len(set(map(len, rows))) != 1:
        return None
    numbers = {type(number) for row in rows for number in row}
    if numbers == {float} and (dtype is None or dtype in _FLOATS):
        return np.array(rows, np.float64)
    if numbers == {int} and dtype in (None, torch.int64):
        try:
            return np.array(rows, np.int64)
        except OverflowError:
            return None
    return None
