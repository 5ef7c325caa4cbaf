"""Rules of thumb that training guides give for workers and caches, as named choices.

They contradict each other (for 64 cores and 4 GPUs: 4, 6, 8, 12 or 16 workers a rank); ``hotloop plan``
predicts each beside what it proposes. A source is the line of the requirements that quotes the guide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

GB: Final = 10**9


class WorkersRule(NamedTuple):
    """Workers per rank from the machine's cores and its ranks."""

    source: str
    says: str
    workers: Callable[[int, int], int]
    prefetch_factor: int = 2


def _table(cores: int, ranks: int) -> int:
    rows = ((64, 48), (32, 24), (16, 12), (8, 4))
    return next((workers for row, workers in rows if cores >= row), cores // 2) // ranks


_HALF: Final = "one GPU 8 workers, several 4 each, never more than half of the cores"
_80_PERCENT: Final = "80 % of the cores divided among the GPUs, at least 4 each"
_LIMITED: Final = "half of the cores, at most 16 workers in all, 2 batches ahead"
_EIGHTHS: Final = "three eighths of the cores, 4 batches ahead"

WORKERS: Final[Mapping[str, WorkersRule]] = MappingProxyType(
    {
        "table": WorkersRule("S0-17", "8 cores: 4 workers, 16: 12, 32: 24, 64: 48", _table),
        "cores-minus-4": WorkersRule(
            "S0-18", "all cores but 4, at most 24", lambda c, r: min(c - 4, 24) // r
        ),
        "half": WorkersRule("S1-16", _HALF, lambda c, r: min(8 if r == 1 else 4, c // 2 // r)),
        "80-percent-per-gpu": WorkersRule("S1-37", _80_PERCENT, lambda c, r: max(4, int(c * 0.8) // r)),
        "cpu-rich": WorkersRule("S1-39", "32 workers in all, 4 batches ahead", lambda c, r: 32 // r, 4),
        "memory-limited": WorkersRule("S1-40", _LIMITED, lambda c, r: min(16, c // 2) // r),
        "cores": WorkersRule("S3-24", "as many workers as cores", lambda c, r: c // r),
        "12-of-32": WorkersRule("S4-7, S4-18", _EIGHTHS, lambda c, r: c * 12 // 32 // r, 4),
        "16-of-32": WorkersRule("S4-19", "half of the cores, 8 batches ahead", lambda c, r: c // 2 // r, 8),
    }
)


class CacheRule(NamedTuple):
    """Cache bytes from the machine's memory in bytes."""

    source: str
    says: str
    cache_bytes: Callable[[int], int]


def _cache_table(memory_bytes: int) -> int:
    rows = ((256, 50), (128, 20), (64, 10))
    gb = memory_bytes // GB
    return next((cache * GB for row, cache in rows if gb >= row), memory_bytes * 10 // 64)


_LOWER_ENDS: Final = "50 GB of 256, 20 of 128, 10 of 64 (the guide's lower ends)"

CACHE: Final[Mapping[str, CacheRule]] = MappingProxyType(
    {
        "none": CacheRule("", "no cache", lambda memory: 0),
        "table": CacheRule("S1-15", _LOWER_ENDS, _cache_table),
        "half-of-memory": CacheRule(
            "S1-68", "never more than half of the memory", lambda memory: memory // 2
        ),
    }
)
