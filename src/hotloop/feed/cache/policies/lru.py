"""Evict what was not used for longest. Of shuffled epochs it hits only c + (1-c) ln(1-c)."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from hotloop.feed.cache.table import Table
from hotloop.feed.memory import SharedFile


class Lru:
    """Least recently used, by the machine's monotonic clock."""

    evicts = True

    def __init__(self, table: Table, file: SharedFile) -> None:
        self._stamp = table.stamp

    def used(self, items: NDArray[np.int64]) -> None:
        """Remember when."""
        now = time.monotonic_ns()
        self._stamp[items] = now if len(items) == 1 else now + np.arange(len(items))

    def urgency(self, items: NDArray[np.int64]) -> NDArray[np.float64]:
        """The oldest goes first."""
        return -self._stamp[items].astype(np.float64)

    def threshold(self, item: int) -> float:
        """The new sample always comes in."""
        return float("-inf")
