"""How often a cache of a fraction of the dataset hits, by policy and by how samples are drawn.

Samples of one size, a warm cache that holds the fraction ``c`` of all N of them. Derivations are in
docs/guides/hit-rate.md; every form is checked against the replay of benchmarks/feed/replay.py.

``epochs``
    Every sample once per epoch, in a new order each time. Between two uses of a sample lies exactly one
    border of epochs, and a hit needs the sample to be there then: no policy hits more than ``c``.
``replacement``
    Every draw is uniform over all samples.
``shards``
    As epochs, but each of ``num_nodes`` nodes with a cache of its own reads a new N / num_nodes of them.
"""

from __future__ import annotations

import math
from typing import Literal

Policy = Literal["keep", "lru", "random", "clairvoyant"]
Sampling = Literal["epochs", "replacement", "shards"]

POLICIES: tuple[Policy, ...] = ("keep", "lru", "random", "clairvoyant")


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
            of two or more nodes).
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
        raise ValueError(f"no closed form is known for {policy} with shards on {num_nodes} nodes")
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
