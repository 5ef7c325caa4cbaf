"""Fill and never evict: of epochs that visit every sample once, no policy hits more (MinIO, VLDB 2021)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hotloop.feed.cache.table import Table
from hotloop.feed.memory import SharedFile


class Keep:
    """First come, kept for good. Hit rate: the share of samples that fit, from the second epoch on."""

    evicts = False

    def __init__(self, table: Table, file: SharedFile) -> None:
        pass

    def used(self, items: NDArray[np.int64]) -> None:
        """Makes no difference."""

    def urgency(self, items: NDArray[np.int64]) -> NDArray[np.float64]:
        """Nothing has to go."""
        return np.zeros(len(items))

    def threshold(self, item: int) -> float:
        """Nothing is displaced."""
        return float("inf")
