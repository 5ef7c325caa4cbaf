"""What caches of the policies of ``hotloop.feed.hitrate`` would answer, read by read.

The plainest form of each policy: closed forms, the shared cache and the picture of the guide are held to it.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hotloop.feed.hitrate import POLICIES, Policy, Sampling

NEVER = np.iinfo(np.int64).max


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
