"""Every closed form against the simulation, the simulation against the plainest model."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
from benchmarks.feed.replay import NEVER, draw, reuse_distances, simulate
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.feed.hitrate import POLICIES, Policy, expected_hit_rate, lru_shards

NUM_SAMPLES = 6_000
READS = st.lists(st.integers(0, 9), max_size=60)


def steady(policy: Policy, fraction: float, *, sampling: str = "epochs", num_nodes: int = 1) -> float:
    """The simulated hit rate once the cache is warm."""
    num_epochs = 10 * num_nodes
    reads = draw(NUM_SAMPLES, num_epochs, sampling=sampling, num_nodes=num_nodes, seed=7)  # type: ignore[arg-type]
    hits = simulate(policy, reads, int(fraction * NUM_SAMPLES), seed=8)
    return float(hits[len(hits) // 2 : -len(hits) // 10].mean())


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("fraction", [0.1, 0.35, 0.65, 0.9])
@pytest.mark.parametrize("sampling", ["epochs", "replacement"])
def test_closed_forms(policy: Policy, fraction: float, sampling: str) -> None:
    expected = expected_hit_rate(policy, fraction, sampling=sampling)  # type: ignore[arg-type]
    assert steady(policy, fraction, sampling=sampling) == pytest.approx(expected, abs=0.012)


@pytest.mark.parametrize("num_nodes", [2, 4, 8])
@pytest.mark.parametrize("fraction", [0.1, 0.25])
def test_shards_drawn_anew(num_nodes: int, fraction: float) -> None:
    simulated = steady("lru", fraction, sampling="shards", num_nodes=num_nodes)
    assert simulated == pytest.approx(lru_shards(fraction, num_nodes), abs=0.015)
    kept = steady("keep", fraction, sampling="shards", num_nodes=num_nodes)
    assert kept == pytest.approx(fraction, abs=0.015)
    assert steady("clairvoyant", fraction, sampling="shards", num_nodes=num_nodes) > 1.9 * fraction


def test_the_figures_of_the_guide() -> None:
    assert expected_hit_rate("lru", 0.5) == pytest.approx(0.1534, abs=1e-4)
    assert expected_hit_rate("random", 0.5) == pytest.approx(0.2831, abs=1e-4)
    assert expected_hit_rate("clairvoyant", 0.35, sampling="replacement") == pytest.approx(0.7092, abs=1e-4)
    assert lru_shards(0.5, 1) == expected_hit_rate("lru", 0.5)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("sampling", ["epochs", "replacement"])
def test_ends_and_order(policy: Policy, sampling: str) -> None:
    rates = [expected_hit_rate(policy, c / 100, sampling=sampling) for c in range(101)]  # type: ignore[arg-type]
    assert rates[0] == 0
    assert rates[-1] == 1
    assert rates == sorted(rates)
    best = [expected_hit_rate("clairvoyant", c / 100, sampling=sampling) for c in range(101)]  # type: ignore[arg-type]
    assert all(mine <= most + 1e-12 for mine, most in zip(rates, best, strict=True))


def test_shards_approach_drawing_with_replacement() -> None:
    assert lru_shards(0.3, 2000) == pytest.approx(0.3, abs=1e-3)
    assert lru_shards(1.0, 4) == 1


@settings(deadline=None)
@given(READS, st.integers(1, 12))
def test_lru_against_a_dictionary(reads: list[int], capacity: int) -> None:
    cache: OrderedDict[int, None] = OrderedDict()
    expected = []
    for sample in reads:
        expected.append(sample in cache)
        cache[sample] = None
        cache.move_to_end(sample)
        if len(cache) > capacity:
            cache.popitem(last=False)
    assert simulate("lru", reads, capacity).tolist() == expected


@settings(deadline=None)
@given(READS)
def test_reuse_distances_against_counting(reads: list[int]) -> None:
    expected = []
    for position, sample in enumerate(reads):
        before = [k for k in range(position) if reads[k] == sample]
        expected.append(len(set(reads[before[-1] + 1 : position])) if before else NEVER)
    assert reuse_distances(np.array(reads, np.int64)).tolist() == expected


@settings(deadline=None)
@given(READS, st.integers(1, 6))
def test_keep_holds_the_first(reads: list[int], capacity: int) -> None:
    held: set[int] = set()
    expected = []
    for sample in reads:
        expected.append(sample in held)
        if len(held) < capacity:
            held.add(sample)
    assert simulate("keep", reads, capacity).tolist() == expected


def _most_hits(reads: tuple[int, ...], capacity: int) -> int:
    """The best any policy can do, by trying everything."""
    best = {frozenset[int](): 0}
    for sample in reads:
        following: dict[frozenset[int], int] = {}
        for held, hits in best.items():
            hits += sample in held
            bigger = held | {sample}
            choices = {held, bigger} if len(bigger) <= capacity else {bigger - {out} for out in bigger}
            for choice in choices:
                following[choice] = max(following.get(choice, 0), hits)
        best = following
    return max(best.values())


@settings(deadline=None)
@given(st.lists(st.integers(0, 4), max_size=14), st.integers(1, 3))
def test_clairvoyant_is_the_optimum(reads: list[int], capacity: int) -> None:
    assert int(simulate("clairvoyant", reads, capacity).sum()) == _most_hits(tuple(reads), capacity)


@settings(deadline=None)
@given(READS, st.integers(0, 12), st.sampled_from(POLICIES))
def test_no_policy_beats_the_clairvoyant_or_hits_before_a_read(
    reads: list[int], capacity: int, policy: Policy
) -> None:
    hits = simulate(policy, reads, capacity)
    assert hits.sum() <= simulate("clairvoyant", reads, capacity).sum()
    assert all(reads[k] in reads[:k] for k in np.flatnonzero(hits))


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="fraction"):
        expected_hit_rate("keep", 1.5)
    with pytest.raises(ValueError, match="policy"):
        expected_hit_rate("mru", 0.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="sampling"):
        expected_hit_rate("lru", 0.5, sampling="sorted")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="num_nodes"):
        expected_hit_rate("lru", 0.5, num_nodes=2)
    with pytest.raises(ValueError, match="no closed form"):
        expected_hit_rate("clairvoyant", 0.5, sampling="shards", num_nodes=2)
    with pytest.raises(ValueError, match="policy"):
        simulate("mru", [1], 1)  # type: ignore[arg-type]
