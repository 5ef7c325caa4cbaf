"""Rules of thumb that training guides give for workers, prefetching and caches, as named choices.

They contradict each other (for 64 cores and 4 GPUs: 4, 6, 8, 12 or 16 workers a rank); ``autosize`` measures
instead and offers these by name. A source is the line of the project's requirements that quotes the guide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

GB: Final = 10**9


@dataclass(frozen=True, kw_only=True)
class WorkersRule:
    """Workers per rank from the machine's cores and its ranks."""

    source: str
    says: str
    workers: Callable[[int, int], int]
    prefetch_factor: int = 2


def _table(cores: int, ranks: int) -> int:
    rows = ((64, 48), (32, 24), (16, 12), (8, 4))
    total = next((workers for row, workers in rows if cores >= row), cores // 2)
    return total // ranks


def _half(cores: int, ranks: int) -> int:
    wanted = 8 if ranks == 1 else 4
    return min(wanted, cores // 2 // ranks)


WORKERS: Final[Mapping[str, WorkersRule]] = MappingProxyType(
    {
        "table": WorkersRule(
            source="S0-17", says="8 cores: 4 workers, 16: 12, 32: 24, 64: 48", workers=_table
        ),
        "cores-minus-4": WorkersRule(
            source="S0-18",
            says="all cores but 4, at most 24",
            workers=lambda cores, ranks: min(cores - 4, 24) // ranks,
        ),
        "half": WorkersRule(
            source="S1-16",
            says="one GPU 8 workers, several 4 each, never more than half of the cores",
            workers=_half,
        ),
        "80-percent-per-gpu": WorkersRule(
            source="S1-37",
            says="80 % of the cores divided among the GPUs, at least 4 each",
            workers=lambda cores, ranks: max(4, int(cores * 0.8) // ranks),
        ),
        "cpu-rich": WorkersRule(
            source="S1-39",
            says="32 workers in all, 4 batches ahead",
            workers=lambda cores, ranks: 32 // ranks,
            prefetch_factor=4,
        ),
        "memory-limited": WorkersRule(
            source="S1-40",
            says="half of the cores, at most 16 workers in all, 2 batches ahead",
            workers=lambda cores, ranks: min(16, cores // 2) // ranks,
        ),
        "cores": WorkersRule(
            source="S3-24", says="as many workers as cores", workers=lambda cores, ranks: cores // ranks
        ),
        "12-of-32": WorkersRule(
            source="S4-7, S4-18",
            says="three eighths of the cores, 4 batches ahead",
            workers=lambda cores, ranks: cores * 12 // 32 // ranks,
            prefetch_factor=4,
        ),
        "16-of-32": WorkersRule(
            source="S4-19",
            says="half of the cores, 8 batches ahead",
            workers=lambda cores, ranks: cores // 2 // ranks,
            prefetch_factor=8,
        ),
    }
)


@dataclass(frozen=True, kw_only=True)
class PrefetchRule:
    """Batches ahead per worker from the dataset's length and the number of workers."""

    source: str
    says: str
    factor: Callable[[int, int], int]


PREFETCH: Final[Mapping[str, PrefetchRule]] = MappingProxyType(
    {
        "default": PrefetchRule(
            source="S0-20", says="2 per worker, as torch", factor=lambda samples, workers: 2
        ),
        "dataset-length": PrefetchRule(
            source="S0-20",
            says="2 below 1,000 samples, 3 up to 5,000, 4 above",
            factor=lambda samples, workers: 2 if samples < 1000 else 3 if samples <= 5000 else 4,
        ),
        "workers": PrefetchRule(
            source="S3-5",
            says="as many as workers, at least 2",
            factor=lambda samples, workers: max(2, workers),
        ),
    }
)


@dataclass(frozen=True, kw_only=True)
class CacheRule:
    """Cache bytes from the machine's memory in bytes."""

    source: str
    says: str
    cache_bytes: Callable[[int], int]


def _cache_table(memory_bytes: int) -> int:
    rows = ((256, 50), (128, 20), (64, 10))
    gb = memory_bytes // GB
    return next((cache * GB for row, cache in rows if gb >= row), memory_bytes * 10 // 64)


CACHE: Final[Mapping[str, CacheRule]] = MappingProxyType(
    {
        "none": CacheRule(source="", says="no cache", cache_bytes=lambda memory: 0),
        "table": CacheRule(
            source="S1-15",
            says="50 GB of 256, 20 of 128, 10 of 64 (the guide's lower ends)",
            cache_bytes=_cache_table,
        ),
        "half-of-memory": CacheRule(
            source="S1-68", says="never more than half of the memory", cache_bytes=lambda memory: memory // 2
        ),
    }
)
