"""How long an iteration takes with given workers and prefetching: the closed form, and its tails.

With S the seconds one worker needs for a batch, W workers, C cores (FIELDNOTES 3.5, checked against 110
measured cells): without workers S + step; with them ``max(step + receive, (S + overhead) / W, CPU / C)``.
Where the times of batches vary, the queue of W x prefetch batches in order runs empty now and then: that
part is the recurrence of such a queue over times as measured, or a fixed draw of lognormal ones.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Final, Literal, NamedTuple, get_args

Method = Literal["inline", "process"]

#: Below this spread of batch times (standard deviation / mean) the closed form is right within 2 %.
STEADY: Final = 0.1
_NUM_DRAWN: Final = 512
#: Batches ahead per worker: tried in this order where the times of batches vary; else the first.
PREFETCH_FACTORS: Final = (2, 3, 4, 6, 8)


class Setting(NamedTuple):
    """A way to feed: in the training thread, or in worker processes."""

    method: Method
    num_workers: int
    prefetch_factor: int

    @property
    def num_ahead(self) -> int:
        """Batches that may be under way or waiting at once."""
        return self.num_workers * self.prefetch_factor

    def memory_bytes(self, worker_bytes: int, batch_bytes: int) -> int:
        """Its processes, the batches ahead of them, the one in use."""
        return self.num_workers * worker_bytes + (self.num_ahead + 1) * batch_bytes

    def __str__(self) -> str:
        if self.method == "inline":
            return "no workers"
        return f"{self.num_workers} worker{'s' * (self.num_workers != 1)} x {self.prefetch_factor} ahead"


INLINE: Final = Setting("inline", 0, 0)


@dataclass(frozen=True, kw_only=True)
class BatchCost:
    """What one batch costs, in seconds: to make it, to move it, to train on it."""

    fetch_s: float  # wall time in whoever makes it, collation included
    fetch_cpu_s: float
    step_s: float
    step_cpu_s: float = 0.0  # what the step takes from the same cores
    receive_s: float = 1e-4  # of the training thread, for a batch from a worker process
    overhead_s: float = 1e-4  # of the worker, on top of making the batch
    spread: float = 0.0  # standard deviation / mean of ``fetch_s``
    seen: tuple[float, ...] = ()  # times of batches over their mean, where they were measured


def iteration_s(cost: BatchCost, setting: Setting, cores: float) -> float:
    """Seconds from one batch to the next, in the long run."""
    if setting.method == "inline":
        return cost.fetch_s + cost.step_s
    consume_s, make_s = cost.step_s + cost.receive_s, cost.fetch_s + cost.overhead_s
    cpu_s = cost.fetch_cpu_s + cost.step_cpu_s + cost.receive_s + cost.overhead_s
    steady = max(consume_s, make_s / setting.num_workers, cpu_s / cores)
    if cost.spread < STEADY:
        return steady
    times = [make_s * ratio for ratio in cost.seen or _lognormal(round(cost.spread, 1))]
    return max(steady, _queue_s(times, consume_s, setting))


def best(cost: BatchCost, cores: float, candidates: Sequence[Setting]) -> tuple[Setting, float]:
    """The first candidate within 2 % of the fastest, and its seconds: order them by what they take."""
    predicted = [(setting, iteration_s(cost, setting, cores)) for setting in candidates]
    fastest = min(seconds for _, seconds in predicted)
    return next(pair for pair in predicted if pair[1] <= fastest * 1.02)


def process_settings(
    cost: BatchCost, *, most: int, prefetch_factors: Sequence[int] = PREFETCH_FACTORS
) -> Iterator[Setting]:
    """Worker counts worth a look, fewest first: up to what keeps pace with the step, for tails half more."""
    needed = (cost.fetch_s + cost.overhead_s) / max(cost.step_s + cost.receive_s, 1e-9)
    highest = max(1, min(most, math.ceil(needed * (1.5 if cost.spread >= STEADY else 1.0)) + 1))
    factors = prefetch_factors if cost.spread >= STEADY else prefetch_factors[:1]
    for workers in range(1, highest + 1):
        # Above sixteen, one more or less is within the noise of the estimate.
        if workers <= 16 or workers % 4 == 0 or workers == highest:
            yield from (Setting("process", workers, factor) for factor in factors)


def _queue_s(times: Sequence[float], consume_s: float, setting: Setting) -> float:
    """Mean seconds per batch of W servers in turn, ``num_ahead`` batches ahead, delivered in order."""
    workers, ahead = setting.num_workers, setting.num_ahead
    finished, taken = [0.0] * workers, [0.0] * ahead
    ready = 0.0
    for number, seconds in enumerate(times):
        worker, place = number % workers, number % ahead
        finished[worker] = max(finished[worker], taken[place]) + seconds
        taken[place] = ready = max(ready, finished[worker])
        ready += consume_s
    return ready / len(times)


@lru_cache(maxsize=64)
def _lognormal(spread: float) -> tuple[float, ...]:
    """Lognormal times of mean 1 and this spread: the quantiles of the distribution, shuffled once."""
    sigma = math.sqrt(math.log1p(spread * spread))
    normal = NormalDist(0.0, sigma)
    values = [math.exp(normal.inv_cdf((k + 0.5) / _NUM_DRAWN)) for k in range(_NUM_DRAWN)]
    mean = sum(values) / len(values)
    random.Random(7).shuffle(values)
    return tuple(value / mean for value in values)


Policy = Literal["keep", "lru"]


def expected_hit_rate(policy: Policy, fraction: float) -> float:
    """The share of reads of shuffled epochs that a warm cache answers.

    Args:
        policy: ``keep`` (fill, then never evict, as :func:`cached` does) or ``lru`` (evict what was not
            used for longest).
        fraction: of the dataset that fits into the cache, in [0, 1].

    The first epoch, when the cache is empty, hits nothing: over E epochs the mean is (E - 1) / E of this.

    Raises:
        ValueError: an argument is out of range.
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction must be in [0, 1], not {fraction}")
    if policy not in get_args(Policy):
        raise ValueError(f"policy must be 'keep' or 'lru', not {policy!r}")
    if policy == "keep" or fraction in (0, 1):
        return float(fraction)
    # A hit if fewer than cN others came between: u (1 - v) > 1 - c, with u and v uniform.
    return fraction + (1 - fraction) * math.log1p(-fraction)
