"""Putting samples in: claim a place under the lock, fill it without, then show it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotloop.feed import layout
from hotloop.feed.cache.layouts import INLINE
from hotloop.feed.cache.lock import fence
from hotloop.feed.cache.shared import Shared
from hotloop.feed.cache.table import CLAIMED, EMPTY, READY, Header

_PADDING = np.zeros(layout.ALIGNMENT, np.uint8)


class SampleWriter:
    """Writes a cache through one process's hold on it."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._warned = False

    def put(self, index: int, sample: Any, *, seconds: float) -> bool:
        """Offer a sample; True if it is in the cache now because of this."""
        shared = self._shared
        if shared.state[index] == READY:
            return False
        try:
            encoded = layout.encode(sample)
        except Exception as error:  # whatever a user's object does when it is pickled
            self._warn(index, error)
            return False
        num_bytes = encoded.layout.num_bytes
        if num_bytes > shared.arena.available_bytes():
            shared.header[Header.FULL] = 1
            return False
        parts = _parts(encoded)
        try:
            if not self._claim(index, encoded.layout, parts, num_bytes, seconds):
                return False
            shared.arena.write(parts, shared.table.one["offset"][index])
        except OSError as error:
            self._unclaim(index)
            self._warn(index, error)
            return False
        except BaseException:
            self._unclaim(index)
            raise
        fence()
        shared.state[index] = READY
        return True

    def sweep(self) -> None:
        """Free what dead processes had claimed, and try again to grow if growth was paused."""
        with self._shared.locked():
            for index in self._shared.table.dead_claims().tolist():
                self._forget(index)
            self._shared.header[Header.PAUSED_UNTIL_NS] = 0
            self._shared.header[Header.LOOKED_NS] = 0
            self._shared.header[Header.FULL] = 0

    def _claim(
        self, index: int, of: layout.Layout, parts: list[NDArray[np.uint8]], num_bytes: int, seconds: float
    ) -> bool:
        """Find a place for a sample and mark it as being written by us; may add to its parts."""
        shared, table = self._shared, self._shared.table
        row = shared.own_row()
        with shared.locked():
            if table.state[index] == READY or not self._take_over(index):
                return False
            number = shared.layouts.number(of)
            if number == INLINE:
                parts.append(shared.layouts.trailer(of))
                num_bytes += parts[-1].size
            if not shared.arena.allocate(index, num_bytes):
                shared.header[Header.FULL] = 1
                return False
            table.cost_s[index] = seconds
            table.layout[index] = number
            table.owner[index] = row + 1
            table.state[index] = CLAIMED
        return True

    def _take_over(self, index: int) -> bool:
        """Free a claim whose process is gone; False if somebody is at it."""
        if self._shared.table.state[index] == EMPTY:
            return True
        owner = int(self._shared.table.owner[index])
        if owner and self._shared.table.row_is_alive(owner - 1):
            return False
        self._forget(index)
        return True

    def _forget(self, index: int) -> None:
        self._shared.table.state[index] = EMPTY
        self._shared.arena.release(index)

    def _unclaim(self, index: int) -> None:
        row, table = self._shared.own_row(), self._shared.table
        with self._shared.locked():
            if table.state[index] == CLAIMED and table.owner[index] == row + 1:
                self._forget(index)

    def _warn(self, index: int, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"sample {index} is not cached: {type(error).__name__}: {error}", RuntimeWarning, stacklevel=4
            )


def _parts(encoded: layout.Encoded) -> list[NDArray[np.uint8]]:
    """The bytes of a sample in order, gaps filled."""
    parts: list[NDArray[np.uint8]] = []
    for payload in encoded.payloads:
        parts.append(payload)
        if gap := -payload.size % layout.ALIGNMENT:
            parts.append(_PADDING[:gap])
    return parts
