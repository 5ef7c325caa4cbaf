"""Keep what saves the most seconds per byte: a greedy knapsack, renewed as costs become known."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hotloop.feed.cache.table import Table
from hotloop.feed.memory import SharedFile

#: How much better a sample must be than those it displaces: measured costs differ from read to read.
MARGIN = 1.1


class Cost:
    """A sample displaces those that save fewer seconds per byte.

    In an epoch that visits every sample once this needs no wait for its end: a sample that gives way has had
    its turn or gives way to one that pays more, and with the first epoch over the best set is in.
    """

    evicts = True

    def __init__(self, table: Table, file: SharedFile) -> None:
        self._table = table

    def used(self, items: NDArray[np.int64]) -> None:
        """Makes no difference: what it costs to make was measured when it was missing."""

    def urgency(self, items: NDArray[np.int64]) -> NDArray[np.float64]:
        """The cheapest per byte goes first."""
        seconds = self._table.cost_s[items].astype(np.float64)
        return -seconds / np.maximum(self._table.num_bytes[items], 1)

    def threshold(self, item: int) -> float:
        """Displace what is clearly cheaper."""
        return float(self.urgency(np.array([item]))[0]) / MARGIN
