"""Putting samples in: one after the other, under the lock; a sample is shown when it is whole."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotloop.feed import layout
from hotloop.feed.cache.layouts import INLINE
from hotloop.feed.cache.lock import fence
from hotloop.feed.cache.shared import Shared
from hotloop.feed.cache.table import READY, Header

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
            return False
        try:
            with shared.lock:
                return self._put(index, encoded, seconds)
        except OSError as error:
            self._warn(index, error)
            return False

    def sweep(self) -> None:
        """Try again to grow if growth was paused."""
        header = self._shared.header
        header[Header.PAUSED_UNTIL_NS] = header[Header.LOOKED_NS] = 0

    def _put(self, index: int, encoded: layout.Encoded, seconds: float) -> bool:
        """Under the lock: whoever dies here leaves at most a place that nobody uses."""
        shared, table = self._shared, self._shared.table
        if table.state[index] == READY:
            return False
        number, parts = shared.layouts.number(encoded.layout), _parts(encoded)
        if number == INLINE:
            parts.append(shared.layouts.trailer(encoded.layout))
        num_bytes = sum(part.size for part in parts)
        start = shared.arena.place(num_bytes)
        if start is None:
            return False
        shared.arena.write(parts, start)
        shared.arena.take(num_bytes)
        table.offset[index], table.num_bytes[index] = start, num_bytes
        table.cost_s[index], table.layout[index] = seconds, number
        fence()
        table.state[index] = READY
        return True

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
