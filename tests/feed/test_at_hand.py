"""Torch's iterator over a cache that has all samples: the same batches in the same order and draws."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from hotloop.feed import cached
from hotloop.feed.cache.at_hand import hand_out
from hotloop.remedy.live.ring import Gathered, as_it_is


class Rows(Dataset[Any]):
    def __init__(self) -> None:
        self.rows = torch.arange(70.0).reshape(35, 2)
        self.num_reads = 0

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        self.num_reads += 1
        return self.rows[index], index


class Watching(Sampler[int]):
    """Draws each index only when it is asked for, and looks at what was handed out so far."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.taken = 0

    def __iter__(self) -> Iterator[int]:
        for index in range(35):
            self.seen.append(self.taken)
            yield index

    def __len__(self) -> int:
        return 35


def drawn() -> float:
    return float(torch.rand(()))


def epoch(loader: DataLoader[Any], cache: Any = None) -> tuple[list[Any], list[float]]:
    """Batches and what the script draws between them."""
    iterator = iter(loader)
    if cache is not None:
        hand_out(iterator, cache)
    batches, draws = [], []
    for batch in iterator:
        batches.append([leaf.tolist() for leaf in batch])
        draws.append(drawn())
    return batches, [*draws, drawn()]


SAMPLERS: dict[str, Any] = {
    "in order": lambda data: {"sampler": SequentialSampler(data)},
    "shuffled": lambda data: {"shuffle": True},
    "generator of the script": lambda data: {
        "sampler": RandomSampler(data, generator=torch.default_generator)
    },
    "with replacement": lambda data: {"sampler": RandomSampler(data, replacement=True, num_samples=50)},
    "a part": lambda data: {"sampler": SubsetRandomSampler([3, 8, 20, 30, 31])},
    "weighted": lambda data: {"sampler": WeightedRandomSampler([1.0, 2.0] * 17 + [0.5], 40)},
    "batches": lambda data: {"batch_sampler": BatchSampler(RandomSampler(data), 4, drop_last=True)},
}


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_batches_and_draws_are_those_of_the_script(sampler: str) -> None:
    data = Rows()
    given = SAMPLERS[sampler](data)
    given |= {} if "batch_sampler" in given else {"batch_size": 4}
    torch.manual_seed(3)
    expected = [epoch(DataLoader(data, **given)) for _ in range(2)]
    kept = cached(data, shared=False)
    kept.gather(list(range(35)))
    kept.gather(list(range(35)))
    reads = data.num_reads
    loader = DataLoader(Gathered(kept), collate_fn=as_it_is, **given)
    torch.manual_seed(3)
    assert [epoch(loader, kept) for _ in range(2)] == expected
    assert data.num_reads == reads


def test_a_sampler_of_the_scripts_own_is_asked_batch_by_batch() -> None:
    data, sampler = Rows(), Watching()
    kept = cached(data, shared=False)
    kept.gather(list(range(35)))
    kept.gather(list(range(35)))
    iterator = iter(DataLoader(Gathered(kept), 5, sampler=sampler, collate_fn=as_it_is))
    hand_out(iterator, kept)
    for _ in iterator:
        sampler.taken += 1
    assert sampler.seen == [index // 5 for index in range(35)]


def test_an_endless_sampler_is_drawn_as_it_is_used() -> None:
    kept = cached(Rows(), shared=False)
    kept.gather(list(range(35)))
    kept.gather(list(range(35)))
    sampler = RandomSampler(range(35), replacement=True, num_samples=10**12)
    iterator = iter(DataLoader(Gathered(kept), 5, sampler=sampler, collate_fn=as_it_is))
    hand_out(iterator, kept)
    assert len(next(iterator)[1]) == 5


def test_a_cache_that_lacks_a_sample_is_left_to_torch() -> None:
    kept = cached(Rows(), shared=False)
    kept.gather(list(range(34)))
    iterator = iter(DataLoader(Gathered(kept), 5, collate_fn=as_it_is))
    kind = type(iterator)
    hand_out(iterator, kept)
    assert type(iterator) is kind
    assert len(list(iterator)) == 7
