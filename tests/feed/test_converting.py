"""Rows converted at once: the same tensor, or the same error, as torch makes of them one by one."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import torch

from hotloop.feed import stacked

Point = collections.namedtuple("Point", "x y")
FLOATS = [[0.1, -0.0, 1e300], [float("nan"), float("inf"), 5e-324], [1.0, 2.0, 16777217.0]]
ARRAY = np.arange(6, dtype=np.float64).reshape(2, 3) / 7

#: Rows of every kind that somebody may convert, and some that torch refuses.
ROWS: dict[str, list[Any]] = {
    "floats": FLOATS,
    "ints": [[1, 2], [3, -(2**63)]],
    "large ints": [[2**53 + 1, 16777217], [2**62 + 1, 3]],
    "too large": [[1, 2], [2**63, 4]],
    "bools": [[True, False], [False, True]],
    "ints then floats": [[1, 2], [2**53 + 1, 3], [0.5, 1.5]],
    "mixed within": [[1, 2.5], [3.5, 4]],
    "tuples": [(1.0, 2.0), (3.0, 4.0)],
    "named tuples": [Point(1.0, 2.0), Point(3.0, 4.0)],
    "ragged": [[1.0, 2.0], [3.0]],
    "nested": [[[1.0, 2.0], [3.0, 4.0]]] * 2,
    "empty": [],
    "some empty": [[], [1.0], []],
    "scalars": [1.5, 2.5, -0.0],
    "int or float": [1, 2.5, True],
    "nothing": [None, 1.0],
    "text": ["a", "b"],
    "decimals": [[Decimal("1.5")], [Decimal("2.5")]],
    "complex": [[1j], [2j]],
    "arrays": [ARRAY[0].copy(), ARRAY[1].copy()],
    "arrays of floats": [ARRAY[0].astype(np.float32), ARRAY[1].astype(np.float32)],
    "arrays of ints": [np.array([1, 2**62 + 1]), np.array([3, 4])],
    "arrays of bytes": [np.array([1, 255], np.uint8), np.array([3, 4], np.uint8)],
    "arrays of bools": [np.array([True, False]), np.array([True, True])],
    "arrays of objects": [np.array([1, None], object)],
    "swapped bytes": [np.array([1.5, 2.5], ">f4"), np.array([3.5, 4.5], ">f4")],
    "two types of arrays": [ARRAY[0], ARRAY[1].astype(np.float32)],
    "planes": [ARRAY, ARRAY + 1],
    "turned": [ARRAY.T, ARRAY.T],
    "backwards": [ARRAY[0][::-1], ARRAY[1][::-1]],
    "arrays without dimension": [np.array(1.5), np.array(2.5)],
    "empty arrays": [np.zeros(0), np.zeros(0)],
    "large arrays": [np.arange(5000.0), np.arange(5000.0) + 1],
    "masked": [np.ma.masked_array([1.0, 2.0], [False, True])],
    "float64 scalars": [np.float64(0.1), np.float64(2.5)],
    "int64 scalars": [np.int64(2**53 + 1), np.int64(2**62 + 1)],
    "rows of float64": [[np.float64(0.1), np.float64(2)], [np.float64(3), np.float64(4)]],
    "rows of int64": [[np.int64(2**53 + 1), np.int64(2)], [np.int64(2**62 + 1), np.int64(4)]],
    "numpy and python": [[np.float64(0.1), 2.0], [3.0, np.float32(0.1)]],
    "rows of arrays": [[ARRAY[0], ARRAY[1]], [ARRAY[1], ARRAY[0]]],
    "tensors": [torch.ones(2), torch.zeros(2)],
    "rows of tensors": [[torch.tensor(1.5), torch.tensor(2.5)]],
    "tensors and lists": [[1.0, 2.0], torch.zeros(2), [3.0, 4.0]],
    "arrays and lists": [np.array([3.0, 4.0]), np.array([3.0, 4.0]), [1.0, 2.0]],
    "ranges": [range(3), range(3)],
    "bytes": [b"ab", b"cd"],
}  # fmt: skip
CONVERTS: list[Callable[..., torch.Tensor]] = [
    torch.tensor, torch.as_tensor, torch.from_numpy, torch.FloatTensor, torch.DoubleTensor, torch.LongTensor,
    torch.IntTensor, torch.BoolTensor,
]  # fmt: skip
OPTIONS: list[dict[str, Any]] = [
    {}, {"dtype": torch.float32}, {"dtype": torch.float64}, {"dtype": torch.int64}, {"dtype": torch.int32},
    {"dtype": torch.float16}, {"dtype": torch.bool}, {"dtype": torch.uint8}, {"dtype": None},
    {"device": "cpu"}, {"dtype": torch.float32, "device": None}, {"requires_grad": True}, {"device": "meta"},
]  # fmt: skip
IDS = [each.__name__ for each in CONVERTS]


OLD = (torch.FloatTensor, torch.DoubleTensor, torch.LongTensor, torch.IntTensor, torch.BoolTensor)


def outcome(make: Callable[..., torch.Tensor], *given: Any, **options: Any) -> Any:
    """What a tensor is, to the last bit; of an error its class."""
    try:
        found = make(*given, **options)
    except Exception as error:
        return type(error)
    held = None
    if not found.is_meta:
        flat = found.detach().reshape(-1).clone()
        held = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    return found.dtype, found.shape, found.stride(), found.device, found.requires_grad, held


def one_by_one(convert: Callable[..., torch.Tensor], rows: Any, **options: Any) -> torch.Tensor:
    return torch.stack([convert(row, **options) for row in rows])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("convert", CONVERTS, ids=IDS)
def test_it_is_what_torch_makes_of_the_rows_one_by_one(convert: Callable[..., torch.Tensor]) -> None:
    for name, rows in ROWS.items():
        if convert in OLD and any(isinstance(row, int | np.integer) for row in rows):
            continue  # ``torch.FloatTensor(3)`` is memory as it was
        for options in OPTIONS:
            expected = outcome(one_by_one, convert, rows, **options)
            for given in (rows, iter(rows)):
                assert outcome(stacked, convert, given, **options) == expected, (name, options)


def test_rows_that_are_written_over_were_read_before() -> None:
    def filled(row: Any) -> Iterator[Any]:
        for value in range(4):
            row[0] = type(row[0])(value)
            yield row

    for row in ([0.5, 1.5], [1, 2], np.zeros(2), np.zeros(2, np.float32), np.zeros(2, np.int64)):
        for convert in (torch.tensor, torch.as_tensor, torch.from_numpy, torch.FloatTensor, torch.LongTensor):
            expected = outcome(one_by_one, convert, filled(row))
            assert outcome(stacked, convert, filled(row)) == expected, (row, convert)


@pytest.mark.parametrize("convert", [torch.tensor, torch.as_tensor, torch.FloatTensor])
def test_what_it_gives_shares_no_memory(convert: Callable[..., torch.Tensor]) -> None:
    rows = [np.ones(2, np.float32), np.ones(2, np.float32)]
    tensor = stacked(convert, rows)
    rows[0][0] = 5
    assert tensor.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    tensor += 1
    assert rows[1].tolist() == [1.0, 1.0]
    assert stacked(convert, [[1.0, 2.0]]).resize_(3, 5).shape == (3, 5)


def test_modes_defaults_and_compilers_have_their_say() -> None:
    rows = [[1.5, 2.5], [3.5, 4.5]]
    with torch.device("meta"):
        assert stacked(torch.tensor, rows).is_meta
    torch.set_default_dtype(torch.float64)
    try:
        assert stacked(torch.tensor, rows).dtype is torch.float64
        assert stacked(torch.FloatTensor, rows).dtype is torch.float32
        torch.set_default_dtype(torch.float16)
        assert stacked(torch.tensor, rows).dtype is torch.float16
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.inference_mode():
        assert stacked(torch.tensor, rows).is_inference()
