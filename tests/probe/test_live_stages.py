"""What the calls that read a sample return: seen without reading anything twice."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Subset

from hotloop.probe.stages import Stages


def decode(index: int) -> Any:
    return np.zeros((8, 64), np.uint8) + index


class Plain(Dataset[Any]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return self.half(decode(index))

    def half(self, x: Any) -> Any:
        return x[::2].copy()


class Derived(Plain):
    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index)


class AtOnce(Plain):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[i] for i in indices]


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        for index in range(8):
            yield decode(index)


def seen(dataset: Any, read: Callable[[Any], Any]) -> dict[str, int]:
    stages = Stages(dataset)
    sys.setprofile(stages.see)
    try:
        read(dataset)
    finally:
        sys.setprofile(None)
    return {name: size for (name, _, _), size in stages.found.items()}


@pytest.mark.parametrize(
    ("dataset", "read"),
    [
        (Plain(), lambda d: d[3]),
        (Derived(), lambda d: d[3]),
        (AtOnce(), lambda d: d.__getitems__([3])),
        (Subset(ConcatDataset([Plain(), Plain()]), [2, 11]), lambda d: d[1]),
    ],
    ids=["plain", "derived", "at once", "wrapped"],
)
def test_calls_of_a_dataset_by_name(dataset: Any, read: Callable[[Any], Any]) -> None:
    assert seen(dataset, read) == {"decode": 512, "half": 256}


def test_samples_of_a_stream() -> None:
    assert seen(Stream(), lambda d: next(iter(d))) == {"decode": 512}


def test_what_others_call_is_not_the_datasets() -> None:
    assert seen(Plain(), lambda d: decode(3)) == {}


def test_an_attribute_that_runs_code_is_left_alone() -> None:
    class Touchy(Plain):
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(name)

    assert seen(Touchy(), lambda d: d[3]) == {"decode": 512, "half": 256}
