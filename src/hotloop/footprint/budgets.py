"""How large a cache may be on a machine, and what a cache of that size is worth.

The guide's table (S1-15: 256 GB of memory: a cache of 50 to 80 GB, 128: 20 to 40, 64: 10 to 20) as a formula:
at most 5/16 of the memory, which is its upper end in every row, and never more than half (S1-68). It does not
know what else runs: ``left`` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hotloop.feed.budget import headroom_of
from hotloop.feed.hitrate import expected_hit_rate
from hotloop.footprint.stages import Stage

#: The guide's lower ends: GB of memory, GB of cache.
_LOWER_ENDS = ((256, 50), (128, 20), (64, 10))


@dataclass(frozen=True, kw_only=True)
class Budget:
    """A size for a cache, and who says so."""

    name: str
    num_bytes: int
    says: str


@dataclass(frozen=True, kw_only=True)
class Fit:
    """One stage's output in a cache of one budget. Rates are of shuffled epochs after the first."""

    stage: str
    budget: str
    fraction: float
    keep_hit_rate: float
    lru_hit_rate: float


def budgets(memory_bytes: int, *, taken_bytes: float = 0.0) -> tuple[Budget, ...]:
    """The sizes to choose from on a machine with so much memory, of which a run takes ``taken_bytes``."""
    headroom = headroom_of(memory_bytes)
    rows = (cache * 10**9 for row, cache in _LOWER_ENDS if memory_bytes >= row * 10**9)
    low = next(rows, memory_bytes * 10 // 64)
    left = max(0, int(memory_bytes - headroom - taken_bytes))
    return (
        Budget(name="guide, low", num_bytes=low, says="10 of 64, 50 of 256 GB"),
        Budget(name="guide, high", num_bytes=memory_bytes * 5 // 16, says="5/16 of the memory"),
        Budget(name="half", num_bytes=memory_bytes // 2, says="of the memory: the most"),
        Budget(
            name="left",
            num_bytes=left,
            says="memory less a tenth for the system" + (", less what the run takes" if taken_bytes else ""),
        ),
    )


def chosen(memory_bytes: int, *, taken_bytes: float = 0.0) -> int:
    """The largest cache that fits: what is left, and no more than half of the memory."""
    by_name = {budget.name: budget.num_bytes for budget in budgets(memory_bytes, taken_bytes=taken_bytes)}
    return min(by_name["left"], by_name["half"])


def fits(stages: Sequence[Stage], num_samples: int, sizes: Sequence[Budget]) -> tuple[Fit, ...]:
    """What each stage's output would make of each budget: one cache, shared by all workers and ranks."""
    found = []
    for stage in stages:
        for budget in sizes:
            fraction = min(1.0, budget.num_bytes / stage.total_bytes(num_samples))
            found.append(
                Fit(
                    stage=stage.name,
                    budget=budget.name,
                    fraction=fraction,
                    keep_hit_rate=expected_hit_rate("keep", fraction),
                    lru_hit_rate=expected_hit_rate("lru", fraction),
                )
            )
    return tuple(found)
