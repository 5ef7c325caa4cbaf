"""How often a cache of a fraction of the dataset hits, by policy and by how samples are drawn.

Samples of one size, a warm cache that holds the fraction ``c`` of all N of them. Derivations are in
docs/guides/hit-rate.md; every form is checked against :func:`simulate` in tests/feed/test_hitrate.py.

``epochs``
    Every sample once per epoch, in a new order each time. Between two uses of a sample lies exactly one
    border of epochs, and a hit needs the sample to be there then: no policy hits more than ``c``.
``replacement``
    Every draw is uniform over all samples.
``shards``
    As epochs, but each of ``num_nodes`` nodes with a cache of its own reads a new N / num_nodes of them.
"""

from __future__ import annotations

import heapq
import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Policy = Literal["keep", "lru", "random", "clairvoyant"]
Sampling = Literal["epochs", "replacement", "shards"]

POLICIES: tuple[Policy, ...] = ("keep", "lru", "random", "clairvoyant")
NEVER = np.iinfo(np.int64).max


def expected_hit_rate(
    policy: Policy, fraction: float, *, sampling: Sampling = "epochs", num_nodes: int = 1
) -> float:
    """The share of reads that a warm cache answers.

    Args:
        policy: ``keep`` (fill, then never evict), ``lru``, ``random`` (evict any), ``clairvoyant`` (Belady's:
            evict or refuse what is used last).
        fraction: of the dataset that fits into the cache, in [0, 1]; with ``shards`` into one node's.
        sampling: how samples are drawn.
        num_nodes: for ``shards``.

    The first epoch, when the cache is empty, hits nothing: over E epochs the mean is (E - 1) / E of this.

    Raises:
        ValueError: an argument is out of range, or no closed form is known (random or clairvoyant with shards
            of two or more nodes: use :func:`simulate`).
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction must be in [0, 1], not {fraction}")
    if policy not in POLICIES:
        raise ValueError(f"policy must be one of {', '.join(POLICIES)}, not {policy!r}")
    if sampling not in ("epochs", "replacement", "shards"):
        raise ValueError(f"sampling must be epochs, replacement or shards, not {sampling!r}")
    if num_nodes < 1 or (num_nodes > 1 and sampling != "shards"):
        raise ValueError("num_nodes must be at least 1, and is for sampling='shards' only")
    if policy == "keep" or fraction in (0, 1):
        return float(fraction)
    if sampling == "replacement":
        return belady_replacement(fraction) if policy == "clairvoyant" else float(fraction)
    if policy == "lru":
        return lru_shards(fraction, num_nodes)
    if num_nodes > 1:
        raise ValueError(
            f"no closed form is known for {policy} with shards on {num_nodes} nodes: simulate it"
        )
    return random_epochs(fraction) if policy == "random" else float(fraction)


def lru_epochs(fraction: float) -> float:
    """``c + (1 - c) ln(1 - c)``: a hit if fewer than cN others came between, u (1 - v) > 1 - c."""
    if fraction >= 1:
        return 1.0
    return fraction + (1 - fraction) * math.log1p(-fraction)


def lru_shards(fraction: float, num_nodes: int) -> float:
    """Least recently used where each epoch gives a node a new shard; ``lru_epochs`` for one node.

    The next use is k epochs on with chance p (1 - p)^(k - 1), p = 1 / num_nodes. The share of the dataset not
    seen between is x (1 - p)^(k - 1) y, with x and y uniform on [1 - p, 1]; a hit if it exceeds 1 - c.
    """
    if fraction >= 1:
        return 1.0
    if num_nodes == 1:
        return lru_epochs(fraction)
    p = 1 / num_nodes
    total, unseen = 0.0, 1.0
    while unseen > 1 - fraction:
        total += p * unseen * _product_exceeds((1 - fraction) / unseen, 1 - p)
        unseen *= 1 - p
    return total


def _product_exceeds(bound: float, lowest: float) -> float:
    """The chance that x y > bound for x, y uniform on [lowest, 1], where bound is at most 1."""
    if bound <= lowest * lowest:
        return 1.0
    start = max(bound, lowest)
    # Of the integral of 1 - max(lowest, bound / x) over x from `start`; from `turn` on, any y will do.
    turn = min(1.0, bound / lowest) if lowest > 0 else 1.0
    area = (turn - start) - bound * math.log(turn / start) if turn > start else 0.0
    area += (1 - max(turn, start)) * (1 - lowest)
    return area / (1 - lowest) ** 2


def random_epochs(fraction: float) -> float:
    """``-c ln(1 - c (1 - e^(-1/c)))``, exact for large N.

    With M(v) the misses up to position v of an epoch over N, a sample read at u and again at v is still there
    with chance e^-((M(1) - M(u) + M(v)) / c). So M' = 1 - A e^(-M/c), where A is the mean of
    e^-((M(1) - M(u)) / c) over u; it is solved by e^(M/c) = A + (1 - A) e^(v/c), and A = c. Taking misses as
    spread evenly over the epoch gives the known ((1 - e^-s) / s)^2 with s = (1 - h) / c, up to 3 % less.
    """
    if fraction <= 0 or fraction >= 1:
        return float(fraction)
    return -fraction * math.log1p(fraction * math.expm1(-1 / fraction))


def belady_replacement(fraction: float) -> float:
    """``1 - e^-x`` where ``c = 1 - (1 + x) e^-x``: kept is whatever is used again within x N draws.

    Times to the next use are exponential with mean N; those kept at any time are the integral of
    e^-t - e^-x over [0, x], which is c.
    """
    if fraction <= 0 or fraction >= 1:
        return float(fraction)
    low, high = 0.0, 700.0
    while (x := (low + high) / 2) not in (low, high):
        low, high = (x, high) if 1 - (1 + x) * math.exp(-x) < fraction else (low, x)
    return -math.expm1(-x)


def draw(
    num_samples: int, num_epochs: int, *, sampling: Sampling = "epochs", num_nodes: int = 1, seed: int = 0
) -> NDArray[np.int64]:
    """The indices one node reads, in order: ``(num_epochs * num_samples // num_nodes,)``."""
    generator = np.random.default_rng(seed)
    if sampling == "replacement":
        return generator.integers(0, num_samples, num_epochs * num_samples)
    per_epoch = num_samples // num_nodes
    orders = [generator.permutation(num_samples)[:per_epoch] for _ in range(num_epochs)]
    return np.concatenate(orders).astype(np.int64)


def simulate(policy: Policy, reads: ArrayLike, capacity: int, *, seed: int = 0) -> NDArray[np.bool_]:
    """Which of these reads a cache of ``capacity`` samples, empty at first, would answer.

    Args:
        policy: as for :func:`expected_hit_rate`.
        reads: indices in the order they are read, ``(num_reads,)``.
        capacity: samples that fit.
        seed: of the evictions of ``random``.
    """
    order = np.asarray(reads, np.int64)
    if policy not in POLICIES:
        raise ValueError(f"policy must be one of {', '.join(POLICIES)}, not {policy!r}")
    if capacity <= 0 or not len(order):
        return np.zeros(len(order), np.bool_)
    if policy == "keep":
        return _keep(order, capacity)
    if policy == "lru":
        return reuse_distances(order) < capacity
    return _random(order, capacity, seed) if policy == "random" else _belady(order, capacity)


def previous_and_next(reads: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For every read, where the same sample was read before (-1: never) and will be next (``NEVER``)."""
    by_sample = np.argsort(reads, kind="stable")
    same = reads[by_sample][1:] == reads[by_sample][:-1]
    before = np.full(len(reads), -1, np.int64)
    after = np.full(len(reads), NEVER, np.int64)
    before[by_sample[1:][same]] = by_sample[:-1][same]
    after[by_sample[:-1][same]] = by_sample[1:][same]
    return before, after


def reuse_distances(reads: NDArray[np.int64]) -> NDArray[np.int64]:
    """Distinct samples between every read and the one before of the same sample; ``NEVER`` for a first read.

    A read of one of them counts if its own predecessor lies before ours: with p the predecessors, that is
    the number of j < i with p[j] < p[i], less the p[i] + 1 reads up to our predecessor. (Mattson's stack
    distance, IBM Systems Journal 1970.)
    """
    before, _ = previous_and_next(reads)
    distances = _smaller_to_the_left(before) - (before + 1)
    return np.where(before < 0, NEVER, distances)


def _smaller_to_the_left(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """For every element, how many before it are smaller: a merge sort that counts, all runs at once."""
    num = len(values)
    rank = np.empty(num, np.int64)
    # Equal values take descending ranks, so that an equal one before is not counted as smaller.
    rank[np.lexsort((-np.arange(num), values))] = np.arange(num)
    counts = np.zeros(num, np.int64)
    by_rank = np.argsort(rank)
    width = 1
    while width < num:
        # All positions by pair of runs, and by rank within the pair.
        pair = by_rank // (2 * width)
        merged = by_rank[np.argsort(pair, kind="stable")]
        in_left = (merged // width) % 2 == 0
        lefts = np.cumsum(in_left)
        pairs = merged // (2 * width)
        lefts_before_pair = np.searchsorted(np.flatnonzero(in_left), np.searchsorted(pairs, pairs))
        counts[merged] += np.where(in_left, 0, lefts - lefts_before_pair)
        width *= 2
    return counts


def _keep(reads: NDArray[np.int64], capacity: int) -> NDArray[np.bool_]:
    samples, first = np.unique(reads, return_index=True)
    kept = samples[np.argsort(first)][:capacity]
    hits = np.isin(reads, kept)
    hits[first] = False
    return hits


def _random(reads: NDArray[np.int64], capacity: int, seed: int) -> NDArray[np.bool_]:
    victims = np.random.default_rng(seed).integers(0, capacity, len(reads)).tolist()
    slots: list[int] = []
    inside: set[int] = set()
    hits = np.zeros(len(reads), np.bool_)
    for position, sample in enumerate(reads.tolist()):
        if sample in inside:
            hits[position] = True
            continue
        inside.add(sample)
        if len(slots) < capacity:
            slots.append(sample)
            continue
        victim = victims[position]
        inside.discard(slots[victim])
        slots[victim] = sample
    return hits


def _belady(reads: NDArray[np.int64], capacity: int) -> NDArray[np.bool_]:
    """What is used last goes, or is not taken in. Belady 1966, with the choice not to cache."""
    _, after = previous_and_next(reads)
    inside: dict[int, int] = {}
    by_next_use: list[tuple[int, int]] = []
    hits = np.zeros(len(reads), np.bool_)
    for position, (sample, next_use) in enumerate(zip(reads.tolist(), after.tolist(), strict=True)):
        hits[position] = inside.pop(sample, None) is not None
        if next_use == NEVER:
            continue
        inside[sample] = next_use
        heapq.heappush(by_next_use, (-next_use, sample))
        while len(inside) > capacity:
            latest, victim = heapq.heappop(by_next_use)
            if inside.get(victim) == -latest:
                del inside[victim]
    return hits
