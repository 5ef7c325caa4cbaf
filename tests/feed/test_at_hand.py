"""Torch's iterator over a cache that has all samples: the same batches in the same order and draws."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
        assert type(index) is int
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
    "more than once": lambda data: {"sampler": RandomSampler(data, num_samples=50)},
    "fewer": lambda data: {"sampler": RandomSampler(data, num_samples=18)},
    "without the rest": lambda data: {"shuffle": True, "drop_last": True},
    "in order, without the rest": lambda data: {"drop_last": True},
    "of another length": lambda data: {"sampler": RandomSampler(range(20))},
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


def full(data: Dataset[Any]) -> Any:
    kept = cached(data, shared=False)
    for _ in range(2):
        kept.gather(list(range(35)))
    return kept


@pytest.mark.parametrize("kind", [RandomSampler, BatchSampler])
def test_what_somebody_put_in_the_place_of_torchs_sampler_is_asked(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = kind.__iter__
    monkeypatch.setattr(kind, "__iter__", lambda sampler: reversed(list(original(sampler))))
    data = Rows()
    torch.manual_seed(3)
    expected = epoch(DataLoader(data, 4, shuffle=True))
    kept = full(data)
    torch.manual_seed(3)
    assert epoch(DataLoader(Gathered(kept), 4, shuffle=True, collate_fn=as_it_is), kept) == expected


def test_whoever_looks_at_the_indices_of_a_batch_finds_those_of_the_sampler() -> None:
    kept = full(Rows())
    iterator: Any = iter(DataLoader(Gathered(kept), 4, collate_fn=as_it_is))
    hand_out(iterator, kept)
    next(iterator)
    indices = iterator._next_index()
    assert isinstance(indices, Sequence)
    assert (list(indices), len(indices), indices[0], indices[1:]) == ([4, 5, 6, 7], 4, 4, [5, 6, 7])
    assert type(indices[0]) is int


def test_a_cache_that_ends_on_the_way_leaves_the_rest_of_the_order_to_the_dataset() -> None:
    data = Rows()
    torch.manual_seed(3)
    expected = epoch(DataLoader(data, 4, shuffle=True))[0]
    kept = full(data)
    torch.manual_seed(3)
    iterator: Any = iter(DataLoader(Gathered(kept), 4, shuffle=True, collate_fn=as_it_is))
    hand_out(iterator, kept)
    found = []
    for number, batch in enumerate(iterator):
        found.append([leaf.tolist() for leaf in batch])
        drawn()
        if number == 3:
            kept.cache.stop(0)
    assert found == expected


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
