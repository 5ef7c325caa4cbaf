"""Keep what saves the most seconds per byte: a greedy knapsack, renewed as costs become known."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hotloop.feed.cache.table import Table
from hotloop.feed.memory import SharedFile

#: How much better a sample must be than those it displaces: measured costs differ from read to read.
MARGIN = 1.1
#: The same against samples that were read less often than it: they have their turn still to come, and a sample
#: that goes before its turn is a hit less.
MARGIN_BEFORE_ITS_TURN = 3.0


class Cost:
    """A sample displaces those that save fewer seconds per byte.

    In an epoch that visits every sample once this needs no wait for its end: a sample that gives way has had
    its turn or gives way to one that pays far more, and with the first epoch over the best set is in.
    """

    evicts = True

    def __init__(self, table: Table, file: SharedFile) -> None:
        self._table = table
        self._num_reads = table.stamp

    def used(self, items: NDArray[np.int64]) -> None:
        """Count: what it costs to make was measured when it was missing."""
        np.add.at(self._num_reads, items, 1)

    def urgency(self, items: NDArray[np.int64]) -> NDArray[np.float64]:
        """The cheapest per byte goes first."""
        seconds = self._table.cost_s[items].astype(np.float64)
        return -seconds / np.maximum(self._table.num_bytes[items], 1)

    def threshold(self, item: int, items: NDArray[np.int64]) -> NDArray[np.float64]:
        """Displace what is clearly cheaper, and what has yet to be read only if it is far cheaper."""
        had_its_turn = self._num_reads[items] >= self._num_reads[item]
        return self.urgency(np.array([item])) / np.where(had_its_turn, MARGIN, MARGIN_BEFORE_ITS_TURN)
