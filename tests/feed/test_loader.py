"""The same batches as torch's DataLoader, whatever the settings."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loader_datasets import (
    Augmented,
    Everything,
    Gathered,
    Stream,
    assert_same,
    ragged,
    random_states,
    seed_everything,
)
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    Sampler,
    Subset,
    WeightedRandomSampler,
    get_worker_info,
)
from torch.utils.data.dataloader import _BaseDataLoaderIter

from hotloop.feed import Loader

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


class FromTheGlobalGenerator(Sampler[int]):
    """Draws from torch's global generator at every index: shows how far a loader reads ahead."""

    def __init__(self, num_samples: int) -> None:
        self.num_samples = num_samples

    def __len__(self) -> int:
        return self.num_samples

    def __iter__(self) -> Iterator[int]:
        for _ in range(self.num_samples):
            yield int(torch.randint(self.num_samples, ()))


def epochs_of(cls: Any, dataset: Any, seed: int, *, num_epochs: int = 2, **settings: Any) -> Any:
    """Every batch, and this process's generators after each epoch. ``generator`` is a seed here."""
    seed_everything(seed)
    if settings.get("generator") is not None:
        settings["generator"] = torch.Generator().manual_seed(settings["generator"])
    sampler = settings.pop("sampler_of", None)
    if sampler is not None:
        settings.update(sampler(dataset))
    loader = cls(dataset, **settings)
    found = []
    for _ in range(num_epochs):
        found.append((list(loader), random_states()))
    return found


SAMPLERS = {
    "none": None,
    "weighted": lambda d: {"sampler": WeightedRandomSampler([1.0] * len(d), 2 * len(d))},
    "replacement": lambda d: {"sampler": RandomSampler(d, replacement=True, num_samples=31)},
    "global": lambda d: {"sampler": FromTheGlobalGenerator(len(d))},
    "list": lambda d: {"sampler": list(range(len(d)))[::-1]},
    "batches": lambda d: {"batch_sampler": [[0], [5, 4, 3], [1, 1]]},
    "batch_sampler": lambda d: {"batch_sampler": BatchSampler(RandomSampler(d), 4, True)},
}


@st.composite
def loader_settings(draw: Any) -> dict[str, Any]:
    chosen: dict[str, Any] = {"num_workers": draw(st.integers(0, 3))}
    if chosen["num_workers"]:
        chosen["prefetch_factor"] = draw(st.sampled_from([None, 1, 2, 5]))
        chosen["persistent_workers"] = draw(st.booleans())
        chosen["timeout"] = draw(st.sampled_from([0, 100]))
    sampler = draw(st.sampled_from(sorted(SAMPLERS)))
    chosen["sampler_of"] = SAMPLERS[sampler]
    if sampler == "none":
        chosen["shuffle"] = draw(st.booleans())
    if "batch" not in sampler:
        chosen["batch_size"] = draw(st.sampled_from([None, 1, 4, 7, 40]))
        chosen["drop_last"] = draw(st.booleans()) if chosen["batch_size"] else False
    chosen["generator"] = draw(st.sampled_from([None, 5]))
    return chosen


OWN_SETTINGS = st.fixed_dictionaries({"copy": st.booleans(), "debug": st.booleans()})


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(loader_settings(), OWN_SETTINGS, st.integers(0, 2**31), st.sampled_from([0, 3, 23]))
def test_batches_and_generators_are_torchs_with_random_transforms(
    chosen: dict[str, Any], own: dict[str, Any], seed: int, num_samples: int
) -> None:
    if num_samples < 23:
        chosen = {**chosen, "sampler_of": None}
        if chosen.get("shuffle"):
            num_samples += num_samples == 0  # torch's RandomSampler wants a sample
    dataset = Augmented(num_samples)
    expected = epochs_of(DataLoader, dataset, seed, **chosen)
    found = epochs_of(Loader, dataset, seed, **chosen, **own)
    assert_same(found, expected)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("collate_fn", [None, ragged])
def test_every_type_comes_out_as_with_torch(num_workers: int, collate_fn: Any) -> None:
    options = {"batch_size": 5, "num_workers": num_workers, "collate_fn": collate_fn}
    expected = list(DataLoader(Everything(), **options))
    found = list(Loader(Everything(), **options))
    assert_same(found, expected)
    if collate_fn is ragged:
        first, again = found[0].names["same"]
        assert first is again


def test_without_batching_samples_come_as_torch_converts_them() -> None:
    for num_workers in (0, 1):
        options = {"batch_size": None, "num_workers": num_workers}
        assert_same(list(Loader(Everything(4), **options)), list(DataLoader(Everything(4), **options)))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_every_start_method(method: str) -> None:
    options = {"batch_size": 4, "shuffle": True, "num_workers": 2, "multiprocessing_context": method}
    expected = epochs_of(DataLoader, Augmented(), 1, num_epochs=1, batch_size=4, shuffle=True, num_workers=2)
    found = epochs_of(Loader, Augmented(), 1, num_epochs=1, **options)
    assert_same(found, expected)


@pytest.mark.parametrize("num_workers", [0, 1, 3])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("size", [None, 4])
def test_iterable_datasets(num_workers: int, persistent: bool, size: int | None) -> None:
    if persistent and not num_workers:
        pytest.skip("needs workers")
    options = {"batch_size": size, "num_workers": num_workers, "persistent_workers": persistent}
    assert_same(epochs_of(Loader, Stream(), 3, **options), epochs_of(DataLoader, Stream(), 3, **options))


def test_out_of_order_gives_the_same_batches() -> None:
    options = {"batch_size": 2, "num_workers": 3, "in_order": False}
    found = sorted(batch["int"].tolist() for batch in Loader(Everything(), **options))
    assert found == sorted(batch["int"].tolist() for batch in DataLoader(Everything(), batch_size=2))


def init(worker: int) -> None:
    info = get_worker_info()
    assert info is not None and info.id == worker and info.num_workers == 2
    info.dataset.num_samples = 100 + worker


class TellsItsWorker(Everything):
    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        assert info is not None and info.dataset is self
        return index, self.num_samples, info.seed - torch.initial_seed(), torch.get_num_threads()


def test_workers_know_who_they_are_and_init_fn_may_change_them() -> None:
    loader = Loader(TellsItsWorker(8), batch_size=2, num_workers=2, worker_init_fn=init)
    assert [batch[1].tolist() for batch in loader] == [[100, 100], [101, 101]] * 2
    assert all(batch[2].tolist() == [0, 0] and batch[3].tolist() == [1, 1] for batch in loader)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_gather_is_used_through_subsets(num_workers: int) -> None:
    dataset = Subset(Subset(Gathered(), range(20)), [3, 1, 19, 2, 7])
    batches = list(Loader(dataset, batch_size=2, num_workers=num_workers))
    assert torch.cat([batch[0] for batch in batches]).equal(Gathered().data[[3, 1, 19, 2, 7]])
    if num_workers:
        assert batches[0][2] == ["gathered True"] * 2
    own = list(Loader(dataset, batch_size=2, num_workers=num_workers, collate_fn=list))
    assert own[0][0][2] == "single 3"


def test_two_iterators_at_once() -> None:
    loader = Loader(Everything(), batch_size=4, num_workers=2)
    expected = list(DataLoader(Everything(), batch_size=4))
    for one, other in zip(loader, loader, strict=True):
        assert_same(one, other)
    first = iter(loader)
    start = next(first)
    assert_same(list(loader), expected)
    assert_same([start, *first], expected)


@pytest.mark.parametrize("persistent", [False, True])
def test_an_iterator_that_is_still_held_changes_no_order(persistent: bool) -> None:
    def run(cls: Any) -> Any:
        seed_everything(5)
        loader = cls(range(20), batch_size=2, shuffle=True, num_workers=1, persistent_workers=persistent)
        held = iter(loader)
        next(held)
        held = iter(loader)  # the first one is let go only now
        return list(held), list(loader), random_states()

    assert_same(run(Loader), run(DataLoader))


@pytest.mark.parametrize("persistent", [False, True])
def test_leaving_a_loop_early_changes_nothing_for_the_next(persistent: bool) -> None:
    def run(cls: Any) -> Any:
        seed_everything(5)
        loader = cls(Augmented(), batch_size=2, shuffle=True, num_workers=2, persistent_workers=persistent)
        found = []
        for stop in (3, 1, 100):
            for number, batch in enumerate(loader, 1):
                found.append(batch)
                if number == stop:
                    break
        return found, random_states()

    assert_same(run(Loader), run(DataLoader))


def test_seeds_by_sample_do_not_depend_on_the_workers() -> None:
    runs = []
    for num_workers, prefetch in ((0, None), (1, 2), (3, 4)):
        options = {"num_workers": num_workers, "prefetch_factor": prefetch, "seed_by": "sample"}
        runs.append(epochs_of(Loader, Augmented(), 9, batch_size=4, generator=4, shuffle=True, **options))
    assert_same(runs[1], runs[0])
    assert_same(runs[2], runs[0])
    values = torch.cat([batch[0] % 1 for batch in runs[0][0][0]])
    assert len(values.unique()) == values.numel()


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_workers": -1},
        {"shuffle": True, "sampler": [1]},
        {"timeout": -1},
        {"prefetch_factor": 2},
        {"persistent_workers": True},
        {"batch_size": None, "drop_last": True},
        {"num_workers": 1, "multiprocessing_context": "thread"},
        {"seed_by": "batch"},
    ],
)
def test_wrong_arguments_are_value_errors(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Loader(Everything(), **wrong)


def test_a_loader_can_be_sent_to_another_process() -> None:
    loader = Loader(Everything(), batch_size=4, num_workers=1, persistent_workers=True)
    expected = list(loader)
    assert_same(list(pickle.loads(pickle.dumps(loader))), expected)
    assert_same(list(copy.deepcopy(loader)), expected)


def test_whoever_watches_torchs_iterators_sees_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = Loader(Everything(), batch_size=4, num_workers=1)
    with torch.profiler.profile(acc_events=True) as profile:
        list(loader)
    counts = {event.key: event.count for event in profile.key_averages()}
    assert counts["enumerate(DataLoader)#Engine.__next__"] == 7
    seen: list[Any] = []
    own = _BaseDataLoaderIter.__next__

    def watched(iterator: Any) -> Any:
        seen.append(own(iterator))
        return seen[-1]

    monkeypatch.setattr(_BaseDataLoaderIter, "__next__", watched)
    assert_same(list(loader), seen)
    assert len(seen) == 6
