"""Every policy holds what it says it holds: closed forms, references, and a model of the whole cache."""

from __future__ import annotations

import collections
import math
from typing import Any

import numpy as np
import pytest
import torch
from cache_samples import is_right, pattern, ragged_size
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hotloop.feed import budget
from hotloop.feed.cache.cache import SampleCache
from hotloop.feed.cache.policies import POLICIES
from hotloop.feed.cache.policies.clairvoyant import plan_bytes
from hotloop.feed.cache.reading import MISSING
from hotloop.feed.cache.storage import Blocks, best_block_bytes
from hotloop.feed.cache.table import CLAIMED, READY, Header, table_bytes

NONE = budget.Pressure(shortage_bytes=0, reason="")


@pytest.fixture(autouse=True)
def enough_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is short of memory for other reasons has nothing to do with these tests."""
    monkeypatch.setattr(budget, "pressure", lambda: NONE)


def cache_of(policy: str, num_items: int, share: float, num_bytes: int = 4096) -> SampleCache:
    """A cache for about this share of so many samples."""
    room = int(num_items * share) * (num_bytes + 64 + 4)
    return SampleCache(num_items, max_bytes=table_bytes(num_items) + 16384 + room, policy=policy)


def read_all(cache: SampleCache, order: list[int], seconds: Any = None) -> int:
    """Read in this order, making what is missing; how many were there."""
    hits = 0
    for index in order:
        if cache.get(index, None) is not None:
            hits += 1
        else:
            cache.put(index, torch.empty(4096, dtype=torch.uint8), seconds=seconds[index] if seconds else 1.0)
    return hits


def shuffled_epochs(num_items: int, num_epochs: int, seed: int = 0) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [random.permutation(num_items).tolist() for _ in range(num_epochs)]


def test_keep_hits_exactly_what_fits() -> None:
    cache = cache_of("keep", 500, 0.4)
    first, *later = shuffled_epochs(500, 4)
    assert read_all(cache, first) == 0
    held = cache.stats().num_items
    assert abs(held / 500 - 0.4) < 0.02
    assert [read_all(cache, epoch) for epoch in later] == [held] * 3
    assert cache.stats().evictions == 0
    cache.close()


def lru_reference(order: list[int], capacity: int) -> int:
    held: collections.OrderedDict[int, None] = collections.OrderedDict()
    hits = 0
    for index in order:
        hits += index in held
        held[index] = None
        held.move_to_end(index)
        if len(held) > capacity:
            held.popitem(last=False)
    return hits


def belady_reference(order: list[int], capacity: int) -> int:
    """Hits of the optimum that may also pass a sample by."""
    following: list[float] = [math.inf] * len(order)
    last: dict[int, int] = {}
    for position in range(len(order) - 1, -1, -1):
        following[position] = last.get(order[position], math.inf)
        last[order[position]] = position
    held: dict[int, float] = {}
    hits = 0
    for position, index in enumerate(order):
        if index in held:
            hits += 1
            held[index] = following[position]
        elif len(held) < capacity:
            held[index] = following[position]
        else:
            worst = max(held, key=held.__getitem__)
            if held[worst] > following[position]:
                del held[worst]
                held[index] = following[position]
    return hits


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_lru_hits_what_its_formula_says(share: float) -> None:
    cache = cache_of("lru", 800, share)
    epochs = shuffled_epochs(800, 6)
    order = [index for epoch in epochs for index in epoch]
    hits = read_all(cache, order)
    capacity = cache.stats().num_items
    assert hits == lru_reference(order, capacity)
    c = capacity / 800
    assert abs(hits / 4000 - (c + (1 - c) * math.log(1 - c))) < 0.03
    cache.close()


def test_clairvoyant_with_replacement_reaches_the_optimum() -> None:
    cache = cache_of("clairvoyant", 400, 0.35)
    order = np.random.default_rng(1).integers(0, 400, 4000).tolist()
    cache.plan(np.array(order))
    hits = read_all(cache, order)
    capacity = cache.stats().num_items
    assert hits == belady_reference(order, capacity)
    assert hits > 1.7 * capacity / 400 * 4000 * 0.9
    cache.close()


def test_clairvoyant_epoch_by_epoch_loses_little_of_the_optimum() -> None:
    cache = cache_of("clairvoyant", 400, 0.35)
    order = np.random.default_rng(2).integers(0, 400, 4000).tolist()
    hits = 0
    for begin in range(0, 4000, 400):
        cache.plan(np.array(order[begin : begin + 400]))
        hits += read_all(cache, order[begin : begin + 400])
    assert hits > 0.85 * belady_reference(order, cache.stats().num_items)
    cache.close()


def test_clairvoyant_on_shuffled_epochs_hits_as_much_as_keep() -> None:
    cache = cache_of("clairvoyant", 300, 0.5)
    first, *later = shuffled_epochs(300, 4)
    for epoch in (first, *later):
        cache.plan(np.array(epoch))
        hits = read_all(cache, epoch)
    assert hits == cache.stats().num_items
    cache.close()


def test_clairvoyant_heeds_every_plan() -> None:
    """What another rank reads soon is held even though this one does not need it."""
    cache = SampleCache(4, max_bytes=table_bytes(4) + (1 << 20) + 2 * 300_000, policy="clairvoyant")
    sample = torch.zeros(700_000, dtype=torch.uint8)
    policy: Any = cache._shared.policy
    own = policy.session
    policy.session = (1, 0)  # another process, which reads 3 at once
    cache.plan(np.array([3, 3]))
    policy.session = own
    cache.plan(np.array([0, 1, 2, 0, 1, 2]))
    cache.put(3, sample)
    cache.put(0, sample)
    assert 3 in cache
    assert cache.stats().num_items < 3
    cache.close()


def test_clairvoyant_without_a_plan_keeps() -> None:
    cache = cache_of("clairvoyant", 200, 0.5)
    first, second = shuffled_epochs(200, 2)
    read_all(cache, first)
    assert read_all(cache, second) == cache.stats().num_items
    assert cache.stats().evictions == 0
    cache.close()


def test_cost_keeps_what_saves_the_most_per_byte() -> None:
    random = np.random.default_rng(3)
    seconds = random.lognormal(0, 1.2, 600).tolist()
    cache = cache_of("cost", 600, 0.2)
    first, second = shuffled_epochs(600, 2)
    read_all(cache, first, seconds)
    held = [index for index in range(600) if index in cache]
    best = sum(sorted(seconds)[-len(held) :])
    assert sum(seconds[index] for index in held) > 0.95 * best
    before = cache.stats()
    hits = read_all(cache, second, seconds)
    saved = cache.stats().saved_s - before.saved_s
    assert hits == len(held)
    assert saved > 1.8 * 0.2 * sum(seconds)
    cache.close()


def test_blocks_fit_samples_of_one_size_and_waste_little_of_others() -> None:
    for num_bytes in range(1, 200_000, 997):
        block = best_block_bytes(num_bytes)
        assert block % 64 == 0
        waste = -num_bytes % block
        assert waste < max(64, num_bytes * 0.03 + 64)


def test_samples_of_one_size_stay_in_one_piece_through_evictions() -> None:
    """So that a batch of them is gathered in one copy."""
    cache = cache_of("lru", 300, 0.3)
    for epoch in shuffled_epochs(300, 3):
        read_all(cache, epoch)
    assert cache.stats().evictions > 300
    assert not cache._shared.table.scattered.any()
    cache.close()


class CacheMachine(RuleBasedStateMachine):
    """A cache of ragged samples under everything that can happen to it, against what must be true of it."""

    policy = "keep"
    num_items = 12

    @initialize(room=st.integers(20_000, 90_000))
    def begin(self, room: int) -> None:
        fixed = table_bytes(self.num_items) + plan_bytes(self.num_items, 1)
        limit = max(2 * fixed, fixed + 8192 + room)
        self.cache = SampleCache(self.num_items, max_bytes=limit, policy=self.policy)
        self.held: set[int] = set()

    def sample(self, index: int) -> tuple[torch.Tensor, int]:
        return pattern(index, ragged_size(index, 20_000)), index

    items = st.integers(0, num_items - 1)

    @rule(index=items, seconds=st.floats(0, 10))
    def read(self, index: int, seconds: float) -> None:
        sample = self.cache.get(index, None)
        if self.policy == "keep":
            assert (sample is not None) == (index in self.held)
        if sample is None and self.cache.put(index, self.sample(index), seconds=seconds):
            self.held.add(index)
            assert index in self.cache
        elif sample is not None:
            assert is_right(sample, index)

    @rule(indices=st.lists(items, min_size=1, max_size=6))
    def gather(self, indices: list[int]) -> None:
        batch = self.cache.gather(np.array(indices))
        if isinstance(batch, list):
            assert all(is_right((batch[0][row], index), index) for row, index in enumerate(indices))

    @rule(order=st.lists(items, min_size=1, max_size=30))
    def plan(self, order: list[int]) -> None:
        self.cache.plan(np.array(order))

    @rule(index=items)
    def writer_is_killed(self, index: int) -> None:
        """A claim whose owner is no process that lives."""
        writer, shared = self.cache._writer, self.cache._shared
        encoded = storage_parts(self.sample(index))
        if shared.state[index] != READY and writer._claim(index, *encoded, 1.0):
            assert shared.table.state[index] == CLAIMED
            shared.table.rows[900, :2] = (2**31 - 1, 1)
            shared.table.owner[index] = 901

    @rule()
    def sweep(self) -> None:
        self.cache.sweep()
        assert not len(self.cache._shared.table.claims())

    @rule(index=items)
    def holder_of_the_lock_is_killed(self, index: int) -> None:
        """The table is marked as being changed: whoever comes next repairs it."""
        self.cache._shared.header[Header.DIRTY] = 1
        with self.cache._shared.locked():
            pass
        self.held = {index for index in self.held if index in self.cache}

    @precondition(lambda self: self.policy != "keep")
    @rule(index=items)
    def eviction_is_cut_short(self, index: int) -> None:
        table = self.cache._shared.table
        if table.state[index] == READY:
            table.version[index] += 1
            assert self.cache._reader.read(index) is MISSING
            self.cache._shared.header[Header.DIRTY] = 1
            with self.cache._shared.locked():
                pass
            assert index not in self.cache

    @invariant()
    def it_stays_within_its_limit(self) -> None:
        assert self.cache.resident_bytes <= self.cache.limit_bytes

    @invariant()
    def no_byte_has_two_owners(self) -> None:
        shared = self.cache._shared
        if isinstance(shared.space, Blocks) and shared.header[Header.BLOCK_BYTES]:
            live = np.flatnonzero(shared.table.state != 0).tolist()
            blocks = [block for index in live for block in shared.space._blocks(index).tolist()]
            assert len(blocks) == len(set(blocks))
            total = shared.header[Header.USED] // shared.header[Header.BLOCK_BYTES]
            assert len(blocks) + shared.header[Header.FREE_BLOCKS] == total

    @invariant()
    def all_that_is_here_is_right(self) -> None:
        for index in range(self.num_items):
            if index in self.cache:
                assert is_right(self.cache._reader.read(index), index)

    def teardown(self) -> None:
        if hasattr(self, "cache"):
            self.cache.close()


def storage_parts(sample: Any) -> tuple[Any, Any, int]:
    from hotloop.feed.cache.writing import _parts
    from hotloop.feed.layout import encode

    encoded = encode(sample)
    return encoded.layout, _parts(encoded), encoded.layout.num_bytes


def _machine(policy: str) -> Any:
    machine = type(f"{policy.title()}Machine", (CacheMachine,), {"policy": policy})
    case = machine.TestCase
    case.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
    return pytest.mark.usefixtures("enough_memory")(case)


TestKeep, TestLru, TestCost, TestClairvoyant = map(_machine, POLICIES)
