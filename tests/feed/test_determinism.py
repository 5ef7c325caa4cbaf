"""The guard: tells samples that may be kept from those that may not, and touches nothing."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from pipelines import Compose, Halve, Noise, Photos, RandomApply, RareFlip, to_float
from torch.utils.data import DataLoader, Dataset

from hotloop.feed import Loader, cached
from hotloop.feed.determinism import check_deterministic
from hotloop.feed.errors import CacheError

MODULE_RNG = np.random.default_rng(0)

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


class From(Dataset[Any]):
    """A dataset of whatever a function gives."""

    def __init__(self, function: Callable[[int], Any], num: int = 9) -> None:
        self.function = function
        self.num = num

    def __len__(self) -> int:
        return self.num

    def __getitem__(self, index: int) -> Any:
        return self.function(index)


def seeded(index: int) -> torch.Tensor:
    torch.manual_seed(index)
    return torch.randn(4)


def forked(index: int) -> torch.Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(index)
        return torch.randn(4)


def of_index(index: int) -> dict[str, Any]:
    return {"x": np.full(3, index), "name": f"item {index}", "nan": float("nan"), "rest": {1, 2, index}}


@pytest.mark.parametrize("function", [of_index, seeded, forked, lambda index: torch.full((2,), torch.nan)])
def test_what_depends_on_the_index_only_is_deterministic(function: Callable[[int], Any]) -> None:
    verdict = check_deterministic(From(function))
    assert verdict, verdict
    assert verdict.indices == (0, 4, 8)
    assert not verdict.reasons


@pytest.mark.parametrize(
    ("function", "word"),
    [
        (lambda index: torch.rand(2), "torch"),
        (lambda index: np.random.rand(2), "numpy.random"),
        (lambda index: random.random(), "random"),
        (lambda index: index if random.random() < 1e-9 else 0, "random"),
        (lambda index: 1 if torch.rand(()) < 1e-9 else 0, "torch"),
        (lambda index: 1 if MODULE_RNG.random() < 1e-9 else 0, "MODULE_RNG"),
    ],
)
def test_drawing_is_found_even_if_nothing_came_of_it(function: Callable[[int], Any], word: str) -> None:
    verdict = check_deterministic(From(function))
    assert not verdict
    assert word in str(verdict)


def test_a_generator_of_the_datasets_own_is_watched_and_put_back() -> None:
    generator = np.random.default_rng(1)
    dataset = From(lambda index: index if generator.random() < 1e-9 else 0)
    before = generator.bit_generator.state
    verdict = check_deterministic(dataset)
    assert not verdict
    assert "generator" in str(verdict)
    assert generator.bit_generator.state == before


def test_the_random_states_come_out_as_they_went_in() -> None:
    torch.manual_seed(3)
    np.random.seed(4)
    random.seed(5)
    expected = torch.rand(2).tolist(), np.random.rand(2).tolist(), random.random()
    torch.manual_seed(3)
    np.random.seed(4)
    random.seed(5)
    check_deterministic(Photos(Compose([Noise(), RareFlip()])))
    assert torch.initial_seed() == 3
    assert (torch.rand(2).tolist(), np.random.rand(2).tolist(), random.random()) == expected


def test_it_names_leaves_and_how_much_of_them_differs() -> None:
    calls = []

    def read(index: int) -> dict[str, Any]:
        calls.append(index)
        return {"image": torch.zeros(10), "boxes": [torch.tensor([0, len(calls)]), "same"]}

    verdict = check_deterministic(From(read))
    assert not verdict
    assert "boxes[0]: 1 of 2 elements differ" in str(verdict)
    assert "image" not in str(verdict)


def test_a_dataset_that_keeps_what_it_read_comes_out_as_it_went_in() -> None:
    class Mixing(From):
        calls = 0
        last: Any = None

        def __init__(self) -> None:
            super().__init__(of_index)
            self.known: dict[int, int] = {}
            self.recent = [0, 1]
            self.counts = np.zeros(4)

        def __getitem__(self, index: int) -> Any:
            self.calls += 1
            self.last, mixed = index, (self.last or 0) + index
            self.known[index] = index
            self.recent.pop(0)
            self.recent.append(index)
            self.counts[index % 4] += 1
            return mixed

    dataset = Mixing()
    assert not check_deterministic(dataset)
    with pytest.raises(CacheError):
        cached(dataset)
    assert (dataset.calls, dataset.last, dataset.known, dataset.recent) == (0, None, {}, [0, 1])
    assert not dataset.counts.any()


@pytest.mark.parametrize(
    ("dataset", "stage", "random_stages"),
    [
        (Photos(Compose([Halve(), RareFlip(), to_float])), "RareFlip", ("RareFlip",)),
        (Photos(Compose([Noise(), Halve(), RareFlip()])), "Noise", ("Noise", "RareFlip")),
        (Photos(Compose([Halve(), RandomApply([Halve()])])), "RandomApply", ("RandomApply",)),
        (From(lambda index: torch.rand(1)), "__getitem__", ("__getitem__",)),
    ],
)
def test_it_names_the_stage(dataset: Any, stage: str, random_stages: tuple[str, ...]) -> None:
    verdict = check_deterministic(dataset)
    assert (verdict.stage, verdict.random_stages) == (stage, random_stages)


class RarelyRandom(From):
    """Deterministic at the indices the guard looks at; one sample draws."""

    def __getitem__(self, index: int) -> Any:
        return torch.rand(3) if index == 5 else super().__getitem__(index)


@pytest.mark.parametrize("workers", [{"num_workers": 1, "multiprocessing_context": "fork"}, {}])
@pytest.mark.parametrize("batched", [False, True])
def test_who_meets_a_random_sample_refuses_it(batched: bool, workers: dict[str, Any]) -> None:
    dataset = RarelyRandom(lambda index: torch.full((3,), float(index)))
    if batched:
        dataset.__class__ = type(
            "Batched", (RarelyRandom,), {"__getitems__": lambda self, indices: [self[k] for k in indices]}
        )
    assert check_deterministic(dataset)
    data = cached(dataset, "1MB", fingerprint=f"rare {batched}", shared=False)
    loader = DataLoader(data, batch_size=3, **workers)
    with pytest.raises(CacheError, match="sample 5 must not be cached"):
        list(loader)
    assert 5 not in data.cache
    data.close()
    data = cached(dataset, "1MB", fingerprint="allowed", shared=False, allow_random=True)
    loader = DataLoader(data, batch_size=3, **workers)
    first = torch.cat(list(loader))
    assert torch.equal(first, torch.cat(list(loader)))
    data.close()


def say(words: str) -> None:
    """Whichever process this is."""
    os.write(1, words.encode())


@pytest.mark.parametrize("workers", [{"num_workers": 1, "multiprocessing_context": "fork"}, {}])
@pytest.mark.parametrize("loader_class", [DataLoader, Loader])
def test_a_cache_that_may_end_goes_on_with_what_the_dataset_gives(
    loader_class: Any, workers: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    dataset = RarelyRandom(lambda index: torch.full((3,), float(index)))
    data = cached(dataset, "1MB", shared=False, on_random=say)
    found, wanted = [], []
    for samples, batches in ((data, found), (dataset, wanted)):
        torch.manual_seed(0)
        loader = loader_class(samples, batch_size=3, **workers)
        batches += [torch.cat(list(loader)) for _ in range(3)]
    assert all(map(torch.equal, found, wanted))
    assert data.cache.stopped_by == 5 and 0 not in data.cache
    assert capfd.readouterr().out.count("sample 5 must not be cached") == 1
    data.close()
