"""Policies that know nothing of what comes. Samples are numbers, all state is in the shared table."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from hotloop.feed.cache.table import Table
from hotloop.feed.memory import SharedFile

#: How much better a sample must be than those it displaces: measured costs differ from read to read.
MARGIN = 1.1


class Keep:
    """First come, kept for good. Hit rate: the share of samples that fit, from the second epoch on.

    Of epochs that visit every sample once, no policy hits more (MinIO, VLDB 2021).
    """

    #: May samples be evicted at all? If not, readers need no check and no copy.
    evicts = False

    def __init__(self, table: Table, file: SharedFile) -> None:
        self._table = table

    def used(self, items: NDArray[np.int64]) -> None:
        """These samples were read just now, found in the cache or not. Called without the lock."""

    def urgency(self, items: NDArray[np.int64]) -> NDArray[np.float64]:
        """How much each of these samples deserves to go; the largest goes first."""
        return np.zeros(len(items))

    def threshold(self, item: int) -> float:
        """The new sample displaces those whose urgency is above this."""
        return float("inf")


class Lru(Keep):
    """Evict what was not used for longest, by the machine's monotonic clock.

    Of shuffled epochs it hits only c + (1-c) ln(1-c).
    """

    evicts = True

    def used(self, items: NDArray[np.int64]) -> None:
        """Remember when."""
        now = time.monotonic_ns()
        self._table.stamp[items] = now if len(items) == 1 else now + np.arange(len(items))

    def urgency(self, items: NDArray[np.int64]) -> NDArray[np.float64]:
        """The oldest goes first."""
        return -self._table.stamp[items].astype(np.float64)

    def threshold(self, item: int) -> float:
        """The new sample always comes in."""
        return float("-inf")


class Cost(Keep):
    """Keep what saves the most seconds per byte: a greedy knapsack, renewed as costs become known.

    In an epoch that visits every sample once this needs no wait for its end: a sample that gives way has had
    its turn or gives way to one that pays more, and with the first epoch over the best set is in.
    """

    evicts = True

    def urgency(self, items: NDArray[np.int64]) -> NDArray[np.float64]:
        """The cheapest per byte goes first."""
        seconds = self._table.cost_s[items].astype(np.float64)
        return -seconds / np.maximum(self._table.num_bytes[items], 1)

    def threshold(self, item: int) -> float:
        """Displace what is clearly cheaper."""
        return float(self.urgency(np.array([item]))[0]) / MARGIN
