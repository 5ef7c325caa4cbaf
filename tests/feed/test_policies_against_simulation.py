"""The shared cache does read by read what the simulation of its policy does."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.feed.replay import draw, simulate
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset

from hotloop.feed import budget, cached
from hotloop.feed.cache.cache import SampleCache
from hotloop.feed.cache.policies.simple import MARGIN
from hotloop.feed.cache.table import table_bytes
from hotloop.feed.hitrate import expected_hit_rate

NUM_ITEMS = 24
NUM_BYTES = 65_536
READS = st.lists(st.integers(0, NUM_ITEMS - 1), min_size=1, max_size=120)
ROOMS = st.integers(1, NUM_ITEMS)

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


@pytest.fixture(autouse=True, scope="module")
def enough_memory() -> Any:
    """A machine that is short of memory for other reasons has nothing to do with these tests."""
    patch = pytest.MonkeyPatch()
    patch.setattr(budget, "pressure", lambda: budget.Pressure(shortage_bytes=0, reason=""))
    yield
    patch.undo()


def new_cache(policy: str, room: int, num_items: int = NUM_ITEMS) -> SampleCache:
    """A cache with room for about so many samples, and one or two more."""
    max_bytes = 2 * table_bytes(num_items) + room * (NUM_BYTES + 64)
    return SampleCache(num_items, max_bytes=max_bytes, policy=policy)


@functools.cache
def capacity_of(policy: str, room: int, num_items: int = NUM_ITEMS) -> int:
    """How many samples such a cache holds when it is offered all of them."""
    cache = new_cache(policy, room, num_items)
    # A plan takes memory of the cache too, the same for all short ones.
    cache.plan(np.array([*range(num_items), *range(num_items)]))
    read(cache, range(num_items))
    held = cache.stats().num_items
    cache.close()
    return held


def sample_of(index: int) -> torch.Tensor:
    return torch.full((NUM_BYTES,), index % 251, dtype=torch.uint8)


def read(cache: SampleCache, order: Sequence[int], seconds: Sequence[float] | None = None) -> list[bool]:
    """Read in this order, making what is missing; which were there."""
    hits = []
    for index in order:
        found = cache.get(index, None)
        hits.append(found is not None)
        if found is None:
            cache.put(index, sample_of(index), seconds=1.0 if seconds is None else seconds[index])
        else:
            assert int(found[0]) == index % 251
    return hits


@pytest.mark.parametrize("policy", ["keep", "lru"])
@settings(deadline=None, max_examples=30)
@given(order=READS, room=ROOMS)
def test_hit_by_hit(policy: str, order: list[int], room: int) -> None:
    cache = new_cache(policy, room)
    expected = simulate(policy, order, capacity_of(policy, room))  # type: ignore[arg-type]
    assert read(cache, order) == expected.tolist()
    cache.close()


@settings(deadline=None, max_examples=50)
@given(order=READS, room=ROOMS)
def test_clairvoyant_hits_as_often_as_any_policy_could(order: list[int], room: int) -> None:
    cache = new_cache("clairvoyant", room)
    cache.plan(np.array(order))
    optimum = simulate("clairvoyant", order, capacity_of("clairvoyant", room))
    assert sum(read(cache, order)) == int(optimum.sum())
    cache.close()


class CostModel:
    """The rule of the policy ``cost`` for samples of one size, in its plainest form."""

    def __init__(self, capacity: int, seconds: Sequence[float]) -> None:
        self.capacity = capacity
        self.seconds = seconds
        self.held: set[int] = set()

    def read(self, index: int) -> bool:
        if index in self.held:
            return True
        if len(self.held) < self.capacity:
            self.held.add(index)
            return False
        cheapest = min(self.held, key=lambda item: (self.seconds[item], item))
        if self.seconds[cheapest] * MARGIN < self.seconds[index]:
            self.held.discard(cheapest)
            self.held.add(index)
        return False


#: Either clearly apart or clearly within the margin.
SECONDS = st.lists(
    st.sampled_from([1.0, 1.05, 2.0, 2.1, 4.0, 8.0, 8.4]), min_size=NUM_ITEMS, max_size=NUM_ITEMS
)


@settings(deadline=None, max_examples=60)
@given(order=READS, room=ROOMS, seconds=SECONDS)
def test_cost_does_what_its_rule_says(order: list[int], room: int, seconds: list[float]) -> None:
    cache = new_cache("cost", room)
    model = CostModel(capacity_of("cost", room), seconds)
    assert read(cache, order, seconds) == [model.read(index) for index in order]
    assert {index for index in range(NUM_ITEMS) if index in cache} == model.held
    cache.close()


def test_cost_hits_as_often_as_keep_where_costs_differ_by_noise_alone() -> None:
    random = np.random.default_rng(7)
    num_items, room = 200, 100
    orders = [random.permutation(num_items).tolist() for _ in range(5)]
    # Half as much again is common on a busy machine, ten times as much not rare.
    noise = [
        np.where(random.random(num_items) < 0.03, 10.0, random.uniform(1, 1.6, num_items)) for _ in orders
    ]
    hits = {}
    for policy in ("keep", "cost"):
        cache = new_cache(policy, room, num_items)
        found = [read(cache, order, seconds.tolist()) for order, seconds in zip(orders, noise, strict=True)]
        hits[policy] = sum(map(sum, found)) / capacity_of(policy, room, num_items)
        cache.close()
    assert hits["keep"] == len(orders) - 1
    assert hits["cost"] == hits["keep"]


def test_cost_of_ragged_samples_comes_near_the_knapsack() -> None:
    random = np.random.default_rng(5)
    num_items = 400
    sizes = (random.lognormal(0, 0.6, num_items) * 3000).astype(np.int64) + 64
    seconds = random.lognormal(0, 1.0, num_items)
    room = int(sizes.sum() * 0.3)
    max_bytes = table_bytes(num_items) + 24_576 + room
    caches = {
        policy: SampleCache(num_items, max_bytes=max_bytes, policy=policy) for policy in ("cost", "keep")
    }
    saved = {}
    for policy, cache in caches.items():
        for _ in range(2):
            for index in random.permutation(num_items).tolist():
                if cache.get(index, None) is None:
                    cache.put(
                        index,
                        torch.zeros(int(sizes[index]), dtype=torch.uint8),
                        seconds=float(seconds[index]),
                    )
        saved[policy] = sum(seconds[index] for index in range(num_items) if index in cache) / seconds.sum()
        cache.close()
    by_density = np.argsort(-seconds / sizes)
    fits = np.cumsum(sizes[by_density]) <= room
    knapsack = seconds[by_density][fits].sum() / seconds.sum()
    assert saved["cost"] > 0.9 * knapsack
    assert saved["cost"] > 1.3 * saved["keep"]


class Numbered(Dataset[Any]):
    def __init__(self, num: int) -> None:
        self.num = num

    def __len__(self) -> int:
        return self.num

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((2048,), index % 251, dtype=torch.uint8)


@pytest.mark.parametrize("policy", ["keep", "lru"])
def test_the_rate_of_shuffled_epochs_through_workers(policy: str) -> None:
    num, fraction = 600, 0.5
    max_bytes = table_bytes(num) + 24_576 + int(num * fraction) * (2048 + 4)
    data = cached(Numbered(num), max_bytes, policy, fingerprint=f"rate {policy}")
    loader = DataLoader(
        data, batch_size=20, shuffle=True, num_workers=1, persistent_workers=True,
        generator=torch.Generator().manual_seed(1), multiprocessing_context="fork",
    )  # fmt: skip
    for batch in loader:
        assert batch.shape[1] == 2048
    cold = data.stats()
    for _ in range(4):
        for _ in loader:
            pass
    warm = data.stats()
    held = warm.num_items / num
    rate = (warm.hits - cold.hits) / (4 * num)
    assert held == pytest.approx(fraction, abs=0.03)
    assert rate == pytest.approx(expected_hit_rate(policy, held), abs=0.002 if policy == "keep" else 0.04)  # type: ignore[arg-type]
    del loader
    data.close()


def test_redrawn_shards_gain_from_knowing_the_order() -> None:
    """Two nodes, one of which we are: twice what keeping gives, as the field's notes say."""
    num, fraction = 300, 0.2
    order = draw(num, 12, sampling="shards", num_nodes=2, seed=4)
    room = int(num * fraction)
    cache = new_cache("clairvoyant", room, num)
    cache.plan(order)
    hits = sum(read(cache, order.tolist()))
    capacity = capacity_of("clairvoyant", room, num)
    assert hits == int(simulate("clairvoyant", order, capacity).sum())
    assert hits > 1.6 * capacity / num * len(order)
    cache.close()
