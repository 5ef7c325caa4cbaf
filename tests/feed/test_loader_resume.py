"""A Loader goes on exactly where another one was, at any batch; its transforms where samples are seeded."""

from __future__ import annotations

import gc
import io
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loader_datasets import Augmented, Stream, assert_same, seed_everything
from torch.utils.data import DistributedSampler

from hotloop.feed import Loader
from hotloop.feed.errors import FeedError
from hotloop.feed.randomness import capture, restore

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

NUM_EPOCHS = 3


def make(chosen: dict[str, Any]) -> Loader:
    options = dict(chosen)
    dataset = Stream() if options.pop("iterable", False) else Augmented(23, options.pop("pause_s", 0.0))
    options.pop("pause_s", None)
    if options.get("generator"):
        options["generator"] = torch.Generator().manual_seed(options["generator"])
    if options.pop("distributed", False):
        options["sampler"] = DistributedSampler(dataset, num_replicas=2, rank=1)
        options.pop("shuffle", None)
    return Loader(dataset, batch_size=3, **options)


def feed(loader: Loader, found: list[Any], *, first: int = 0, stop: int = -1) -> int:
    """Append batches up to ``stop`` in all; the epoch that is under way then."""
    for epoch in range(first, NUM_EPOCHS):
        if isinstance(loader.sampler, DistributedSampler):
            loader.sampler.set_epoch(epoch)
        for batch in loader:
            found.append(batch)
            if len(found) == stop:
                return epoch
    return NUM_EPOCHS


@st.composite
def resumable(draw: Any) -> dict[str, Any]:
    chosen: dict[str, Any] = {"num_workers": draw(st.integers(0, 3))}
    chosen["iterable"] = draw(st.sampled_from([False, False, False, True]))
    if chosen["num_workers"]:
        chosen["prefetch_factor"] = draw(st.integers(1, 3))
        chosen["persistent_workers"] = draw(st.booleans())
    if not chosen["iterable"]:
        chosen["shuffle"] = draw(st.booleans())
        chosen["seed_by"] = draw(st.sampled_from(["worker", "sample"]))
        chosen["distributed"] = draw(st.booleans())
        chosen["drop_last"] = draw(st.booleans())
    chosen["generator"] = draw(st.sampled_from([None, 7]))
    return chosen


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(resumable(), st.integers(1, 24), st.booleans(), st.booleans())
def test_resumed_anywhere_the_rest_is_the_same(
    chosen: dict[str, Any], stop: int, while_it_runs: bool, twice: bool
) -> None:
    seed_everything(1)
    expected: list[Any] = []
    feed(make(chosen), expected)
    after = capture()

    seed_everything(1)
    loader, found = make(chosen), []
    if while_it_runs:  # the state is taken within the loop, the iterator lives on
        states: list[Any] = []
        for epoch in range(NUM_EPOCHS):
            if isinstance(loader.sampler, DistributedSampler):
                loader.sampler.set_epoch(epoch)
            for batch in loader:
                if len(found) < stop:
                    found.append(batch)
                if len(found) == stop and not states:
                    states = [epoch, loader.state_dict(), capture()]
        epoch, state, random = states or (NUM_EPOCHS, loader.state_dict(), capture())
    else:
        epoch = feed(loader, found, stop=stop)
        state, random = loader.state_dict(), capture()
    del loader
    gc.collect()
    for again in range(2 if twice else 1):
        loader, file = make(chosen), io.BytesIO()
        torch.save(state, file)
        file.seek(0)
        loader.load_state_dict(torch.load(file, weights_only=True))
        if again + 1 < (2 if twice else 1):
            state = loader.state_dict()  # loaded, not yet used
    seed_everything(99)
    restore(random)
    feed(loader, found, first=epoch if state["iterator"] else epoch + 1)
    if chosen["num_workers"] and chosen.get("seed_by") != "sample":
        found, expected = [batch[-1] for batch in found], [batch[-1] for batch in expected]
    assert_same(found, expected)
    assert torch.equal(capture().torch, after.torch)


def test_resumed_from_a_resumed_one() -> None:
    options = {"num_workers": 2, "shuffle": True, "generator": 3, "seed_by": "sample"}
    seed_everything(1)
    expected: list[Any] = []
    feed(make(options), expected)
    seed_everything(1)
    loader, found = make(options), []
    epoch = feed(loader, found, stop=2)
    for stop in (3, 5, 8, 11):
        state, random = loader.state_dict(), capture()
        loader = make(options)
        loader.load_state_dict(state)
        restore(random)
        epoch = feed(loader, found, first=epoch if state["iterator"] else epoch + 1, stop=stop)
    assert_same(found, expected[: len(found)])


def test_a_state_of_batches_out_of_order_is_refused() -> None:
    loader = make({"num_workers": 3, "in_order": False})
    feed(loader, [], stop=4)
    with pytest.raises(FeedError, match="in_order=False"):
        make({"num_workers": 3}).load_state_dict(loader.state_dict())


def test_seeds_by_sample_go_on_with_other_workers() -> None:
    options = {"seed_by": "sample", "shuffle": True, "generator": 3}
    expected: list[Any] = []
    feed(make({**options, "num_workers": 2}), expected)
    loader, found = make({**options, "num_workers": 2}), []
    epoch = feed(loader, found, stop=10)
    state = loader.state_dict()
    loader = make({**options, "num_workers": 0})
    loader.load_state_dict(state)
    feed(loader, found, first=epoch)
    assert_same(found[:16], expected[:16])


def test_what_workers_draw_is_not_drawn_again() -> None:
    torch.manual_seed(0)
    loader = make({"num_workers": 1})
    iterator = iter(loader)
    first = [next(iterator) for _ in range(3)]
    other = make({"num_workers": 1})
    other.load_state_dict(loader.state_dict())
    assert not any(torch.equal(one[1], two[1]) for one, two in zip(first, other, strict=False))


class Counted:
    """A sampler with a state of its own that changes from epoch to epoch."""

    def __init__(self) -> None:
        self.epoch_number = 0

    def __len__(self) -> int:
        return 23

    def __iter__(self) -> Any:
        self.epoch_number += 1
        return iter([(index * 5 + self.epoch_number) % 23 for index in range(23)])

    def state_dict(self) -> dict[str, int]:
        return {"epoch_number": self.epoch_number}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch_number = state["epoch_number"]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_samplers_own_state_is_carried(num_workers: int) -> None:
    def loader() -> Loader:
        return Loader(Augmented(), batch_size=3, sampler=Counted(), num_workers=num_workers)

    whole = loader()
    expected = [batch[3] for _ in range(2) for batch in whole]
    first = loader()
    found = [batch[3] for batch in first]
    iterator = iter(first)
    found += [next(iterator)[3] for _ in range(3)]
    second = loader()
    second.load_state_dict(first.state_dict())
    assert_same(found + [batch[3] for batch in second], expected)


def test_a_dead_worker_leaves_a_state_to_go_on_from() -> None:
    options = {"num_workers": 2, "shuffle": True, "generator": 3, "seed_by": "sample"}
    seed_everything(1)
    expected = list(make(options))
    seed_everything(1)
    loader = make(options)
    iterator = iter(loader)
    found = [next(iterator) for _ in range(3)]
    iterator._workers[1].process.kill()
    with pytest.raises(RuntimeError, match="SIGKILL"):
        while True:
            found.append(next(iterator))
    other = make(options)
    other.load_state_dict(loader.state_dict())
    assert_same([*found, *other], expected)
