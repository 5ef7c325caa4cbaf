"""The guard: tells samples that may be kept from those that may not, and touches nothing."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from pipelines import Compose, Halve, MarkedPhotos, Noise, Photos, RandomApply, RareFlip, to_float
from torch.utils.data import DataLoader, Dataset

from hotloop.feed import Loader, cached
from hotloop.feed.comparing import differences, snapshot
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


def test_a_generator_seeded_by_the_index_is_no_draw() -> None:
    generator = torch.Generator()

    def read(index: int) -> torch.Tensor:
        generator.manual_seed(index)
        return torch.rand(3, generator=generator)

    assert check_deterministic(From(read))


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


def test_a_change_in_place_of_stored_data_is_found() -> None:
    class InPlace(From):
        def __getitem__(self, index: int) -> Any:
            return self.data[index].mul_(2)

    dataset = InPlace(of_index)
    dataset.data = torch.ones(9, 2)
    verdict = check_deterministic(dataset)
    assert not verdict
    assert "2 of 2 elements differ" in str(verdict)


def test_a_counter_is_named_and_no_reason_to_refuse() -> None:
    class Counting(From):
        calls = 0

        def __getitem__(self, index: int) -> Any:
            self.calls += 1
            return index

    verdict = check_deterministic(Counting(of_index))
    assert verdict
    assert any(change.startswith("dataset.calls: ") for change in verdict.state_changes)


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


def test_an_output_that_follows_a_counter_is_refused_though_it_has_stages() -> None:
    class Curriculum(Photos):
        calls = 0

        def __getitem__(self, index: int) -> Any:
            self.calls += 1
            image, target = super().__getitem__(index)
            return image, target + self.calls

    verdict = check_deterministic(Curriculum(Compose([Halve()])))
    assert not verdict


def test_what_is_set_up_on_first_use_is_no_change() -> None:
    class Lazy(From):
        table: torch.Tensor | None = None

        def __getitem__(self, index: int) -> Any:
            if self.table is None:
                self.table = torch.randperm(4)
            return index

    verdict = check_deterministic(Lazy(of_index))
    assert verdict
    assert verdict.state_changes == ()


@pytest.mark.parametrize(
    ("dataset", "stage", "random_stages"),
    [
        (Photos(Compose([Halve(), RareFlip(), to_float])), "RareFlip", ("RareFlip",)),
        (Photos(Compose([Noise(), Halve(), RareFlip()])), "Noise", ("Noise", "RareFlip")),
        (Photos(Compose([Halve(), RandomApply([Halve()])])), "RandomApply", ("RandomApply",)),
        (MarkedPhotos(), "augment", ("augment",)),
        (From(lambda index: torch.rand(1)), "__getitem__", ("__getitem__",)),
    ],
)
def test_it_names_the_stage(dataset: Any, stage: str, random_stages: tuple[str, ...]) -> None:
    verdict = check_deterministic(dataset)
    assert (verdict.stage, verdict.random_stages) == (stage, random_stages)


def test_in_a_worker_process() -> None:
    class Checking(From):
        def __getitem__(self, index: int) -> Any:
            before = torch.get_rng_state()
            verdicts = bool(check_deterministic(From(of_index))), bool(check_deterministic(Photos(Noise())))
            return [*verdicts, torch.equal(before, torch.get_rng_state())]

    loader = DataLoader(
        Checking(of_index, num=2), batch_size=None, num_workers=1, multiprocessing_context="fork"
    )
    assert list(loader) == [[True, False, True]] * 2


def test_what_cannot_be_stored_is_refused_in_words() -> None:
    verdict = check_deterministic(From(lambda index: {"open": lambda: index}))
    assert not verdict
    assert "cannot be stored" in str(verdict)


def test_errors_of_the_dataset_and_of_use() -> None:
    def broken(index: int) -> Any:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        check_deterministic(From(broken))
    with pytest.raises(ValueError, match="at least one index"):
        check_deterministic(From(of_index), [])
    with pytest.raises(ValueError, match="at least one index"):
        check_deterministic(From(of_index, num=0))
    with pytest.raises(ValueError, match="num_samples"):
        check_deterministic(From(of_index), num_samples=0)


def test_comparing_tells_kinds_shapes_and_structures_apart() -> None:
    def words(first: Any, second: Any) -> list[str]:
        return differences(snapshot(first), snapshot(second))

    assert words({"a": 1, "b": [2.0, None]}, {"a": 1, "b": [2.0, None]}) == []
    assert words({"a": 1}, {"b": 1}) == ["has another structure"]
    assert words({"a": 1}, {"a": 1.0}) == ["a: a int first, then a float"]
    assert words(torch.zeros(2), torch.zeros(3)) == ["shape (2,) first, then (3,)"]
    assert words(np.zeros(2), np.zeros(2, np.float32)) == ["<f8 first, then <f4"]
    assert words(torch.tensor([0.0]), torch.tensor([-0.0])) == ["1 of 1 elements differ"]
    assert words([1, 2 + 3j], [1, 2 + 4j]) == ["[1]: another value"]


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
    assert data.cache.stopped_by == 5 and 0 not in data.cache and not data.is_at_hand()
    assert capfd.readouterr().out.count("sample 5 must not be cached") == 1
    data.close()


def test_samples_that_seed_themselves_are_cached_by_workers() -> None:
    data = cached(From(seeded, num=40), "1MB", fingerprint="seeded", shared=False)
    loader = DataLoader(data, batch_size=4, num_workers=1, multiprocessing_context="fork")
    first = torch.cat(list(loader))
    assert torch.equal(first, torch.stack([seeded(index) for index in range(40)]))
    assert data.stats().num_items == 40
    data.close()


@pytest.mark.gpu
def test_the_states_of_cuda_come_out_as_they_went_in() -> None:
    """Not yet run on a GPU."""
    torch.cuda.manual_seed(3)
    before = torch.cuda.get_rng_state()
    verdict = check_deterministic(From(lambda index: torch.rand(3, device="cuda").cpu()))
    assert not verdict
    assert torch.equal(before, torch.cuda.get_rng_state())
