"""Putting samples in: one after the other, under the lock; a sample is shown when it is whole."""

from __future__ import annotations

import warnings
from typing import Any

from hotloop.feed import layout
from hotloop.feed.cache.layouts import INLINE
from hotloop.feed.cache.lock import fence
from hotloop.feed.cache.shared import Shared
from hotloop.feed.cache.table import READY


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
        if encoded.layout.num_bytes > shared.arena.available_bytes():
            return False
        try:
            with shared.lock:
                return self._put(index, encoded, seconds)
        except OSError as error:
            self._warn(index, error)
            return False

    def _put(self, index: int, encoded: layout.Encoded, seconds: float) -> bool:
        """Under the lock: whoever dies here leaves at most a place that nobody uses."""
        shared, table = self._shared, self._shared.table
        if table.state[index] == READY:
            return False
        number, num_bytes = shared.layouts.number(encoded.layout), encoded.layout.num_bytes
        trailer = shared.layouts.trailer(encoded.layout) if number == INLINE else None
        total = num_bytes if trailer is None else num_bytes + trailer.size
        start = shared.arena.place(total)
        if start is None:
            return False
        for field, payload in zip(encoded.layout.fields, encoded.payloads, strict=True):
            shared.arena.write(payload, start + field.offset)
        if trailer is not None:
            shared.arena.write(trailer, start + num_bytes)
        shared.arena.take(total)
        table.offset[index], table.num_bytes[index] = start, total
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
