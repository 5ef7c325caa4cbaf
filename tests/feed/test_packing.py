"""Batches into a slot and out again: what they are made of, and that nothing of it is lost."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
import torch
from loader_datasets import Point, Record, assert_same

from hotloop.feed.arena import Arena
from hotloop.feed.memory import SharedFile
from hotloop.feed.packing import pack, unpack
from hotloop.feed.ring import offset_of


def carried(batch: Any) -> Any:
    """The batch as it comes out on the other side."""
    file = SharedFile("test")
    arena = Arena(file)
    arena.open(0, 0)
    meta, spans = pack(batch, arena)
    memory = file.map(arena.capacity, offset=offset_of(0)).array() if arena.used else None
    return unpack(meta, spans, memory)


DTYPES = [torch.bool, torch.uint8, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.complex64]
BATCHES = {
    "tensors": [torch.rand(3, 4), torch.arange(3)],
    "dictionary": {"x": torch.rand(2), 3: (torch.ones(1), [torch.zeros(2, 0)]), "none": None},
    "numbers": (1, 2.5, -0.0, float("inf"), True, 3j, 1 << 70, "\udcff é", b"\0", [[], [1, "a"]], {}),
    "scalar": torch.tensor(7),
    "strides": [torch.rand(3, 4).T, torch.rand(1, 3).expand(5, 3), torch.rand(2, 3, 4).permute(2, 0, 1)],
    "dtypes": [torch.ones(3, 2).to(dtype) for dtype in DTYPES],
    "named tuple": Point(torch.ones(2), 1),
    "dataclass": Record(image=torch.ones(2), names=["a"]),
    "own mapping": OrderedDict(x=torch.ones(2)),
    "array": [torch.ones(2), np.arange(1000)],
    "parameter": [torch.nn.Parameter(torch.ones(2))],
    "own key": {Point(1, 2): torch.ones(2)},
    "own text": [np.str_("a")],
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_comes_out_as_it_went_in(name: str) -> None:
    assert_same(carried(BATCHES[name]), BATCHES[name])


def test_what_is_there_twice_comes_out_once() -> None:
    tensor, inner = torch.ones(3), [torch.zeros(2)]
    batch: list[Any] = [tensor, {"again": tensor}, inner, inner]
    batch.append(batch)
    found = carried(batch)
    assert found[0] is found[1]["again"]
    assert found[2] is found[3]
    assert found[4] is found


def test_tensors_can_be_written_to() -> None:
    found, other = carried([torch.ones(3), torch.ones(3)])
    found += 1
    assert found.tolist() == [2.0] * 3 and other.tolist() == [1.0] * 3
