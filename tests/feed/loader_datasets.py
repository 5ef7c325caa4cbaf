"""Datasets for the loader's tests, importable by spawned workers."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from bake_datasets import Point
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from hotloop.feed.collating import Out


@dataclass
class Record:
    image: Any
    names: Any


class Everything(Dataset[Any]):
    """Every kind of leaf and of branch that torch collates."""

    def __init__(self, num_samples: int = 23) -> None:
        self.num_samples = num_samples

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: int) -> Any:
        return {
            "image": torch.full((3, 4, 5), index, dtype=torch.uint8),
            "half": torch.full((2,), index, dtype=torch.bfloat16),
            "array": np.full((2, 3), index, np.int16),
            "scalar": np.float32(index),
            "int": index,
            "float": index / 3,
            "bool": index % 2 == 0,
            "text": f"sample {index}",
            "bytes": bytes([index]),
            "point": Point(torch.tensor(index), (index, [torch.zeros(0), "x"])),
            "complex": torch.tensor([1j * index]),
        }


class Augmented(Everything):
    """Draws from all three generators."""

    def __init__(self, num_samples: int = 23, pause_s: float = 0.0) -> None:
        super().__init__(num_samples)
        self.pause_s = pause_s

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.pause_s)
        return torch.rand(3) + index, np.random.rand(2), random.random(), index


class Gathered(Dataset[Any]):
    """Hands out whole batches, and counts how."""

    _serves_loader = True

    def __init__(self, num_samples: int = 23) -> None:
        self.data = torch.arange(num_samples * 6).view(num_samples, 6)
        self.with_memory = 0

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Any:
        return self.data[index], index, f"single {index}"

    def gather(self, indices: Sequence[int], out: Out | None = None) -> Any:
        rows = list(indices)
        memory = out((len(rows), 6), self.data.dtype) if out else self.data.new_empty(len(rows), 6)
        torch.index_select(self.data, 0, torch.tensor(rows), out=memory)
        return [memory, torch.tensor(rows), [f"gathered {out is not None}" for _ in rows]]


class Stream(IterableDataset[Any]):
    """Sharded by worker, unevenly."""

    def __init__(self, num_samples: int = 23) -> None:
        self.num_samples = num_samples

    def __iter__(self) -> Any:
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        for index in range(first, self.num_samples - first, step):
            yield torch.rand(2) + index, index


class Large(Everything):
    """Batches of ``batch_size * 2**20`` bytes, to see slots grow and memory be used again."""

    def __init__(self, num_samples: int = 24) -> None:
        super().__init__(num_samples)

    def __getitem__(self, index: int) -> Any:
        return torch.full((1 << 18,), float(index)), index


def ragged(samples: Sequence[Any]) -> Any:
    """Anything a user's own collation may make: lists of unlike tensors, arrays, dataclasses, aliases."""
    lengths = [1 + int(sample["int"]) % 4 for sample in samples]
    shared = torch.arange(4)
    images = torch.stack([sample["image"] for sample in samples])
    return Record(
        image=[torch.ones(length, 2) * length for length in lengths],
        names={
            "all": [sample["text"] for sample in samples],
            "array": np.arange(100 + lengths[0]),
            "channels_last": images.permute(0, 2, 3, 1),
            "expanded": torch.ones(1, 3).expand(5, 3),
            "sparse": torch.eye(2).to_sparse(),
            "same": (shared, shared),
            "object": Point(1, None),
        },
    )


def seed_everything(seed: int) -> None:
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def random_states() -> tuple[Any, ...]:
    numpy: Any = np.random.get_state(legacy=False)
    return torch.get_rng_state().tolist(), numpy["state"]["key"].tolist(), random.getstate()


def assert_same(one: Any, other: Any, path: str = "batch") -> None:
    """Equal in type, dtype, shape, strides and bits, all the way down."""
    assert type(one) is type(other), path
    if isinstance(one, torch.Tensor):
        assert one.dtype is other.dtype, path
        assert one.shape == other.shape, path
        assert one.layout is other.layout, path
        if one.layout is torch.strided:
            assert one.stride() == other.stride(), path
        else:
            one, other = one.to_dense(), other.to_dense()
        assert torch.equal(one, other), path
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype, path
        assert np.array_equal(one, other), path
    elif isinstance(one, dict):
        assert list(one) == list(other), path
        for name in one:
            assert_same(one[name], other[name], f"{path}[{name!r}]")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), path
        for position, (mine, theirs) in enumerate(zip(one, other, strict=True)):
            assert_same(mine, theirs, f"{path}[{position}]")
    elif isinstance(one, Record):
        assert_same(vars(one), vars(other), path)
    else:
        assert one == other, path
