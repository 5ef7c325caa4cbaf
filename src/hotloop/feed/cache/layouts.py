"""The layouts of a cache's samples, written once and found by number in every process.

They lie in a log that only grows. Where nearly every sample has a layout of its own (ragged data), the log
ends at its ceiling and a layout travels at the end of its sample.
"""

from __future__ import annotations

import os
import pickle
import struct

import numpy as np
from numpy.typing import NDArray

from hotloop.feed.cache.table import Header, Table
from hotloop.feed.layout import Layout
from hotloop.feed.memory import PAGE_BYTES, SharedFile, round_up

#: Where the log begins in the shared file; its first page holds nothing.
LOG_OFFSET = 1 << 40

#: The layout's number when it lies behind the sample.
INLINE = 1

_LARGEST_LOG_BYTES = 1 << 20
_LENGTH = struct.Struct("<q")


class Layouts:
    """Numbers for layouts and layouts for numbers."""

    def __init__(self, file: SharedFile, table: Table) -> None:
        self._file = file
        self._table = table
        self._ceiling = max(2 * PAGE_BYTES, min(_LARGEST_LOG_BYTES, table.header[Header.LIMIT] // 64))
        self._by_number: dict[int, Layout] = {}
        self._numbers: dict[Layout, int] = {}
        self._seen = PAGE_BYTES

    def number(self, layout: Layout) -> int:
        """The number of any layout, logged if it is new; ``INLINE`` if the log is full. Under the lock."""
        self._catch_up()
        if number := self._numbers.get(layout, 0):
            return number
        header = self._table.header
        at = header[Header.LAYOUT_BYTES]
        entry = pickle.dumps(layout, pickle.HIGHEST_PROTOCOL)
        end = at + _LENGTH.size + len(entry)
        more = round_up(end) - round_up(at)
        free = header[Header.LIMIT] - header[Header.OVERHEAD] - header[Header.FRONTIER]
        if end > self._ceiling or more > free:
            return INLINE
        try:
            os.pwrite(self._file.descriptor, _LENGTH.pack(len(entry)) + entry, LOG_OFFSET + at)
        except OSError:
            return INLINE
        header[Header.OVERHEAD] += more
        header[Header.LAYOUT_BYTES] = end
        self._catch_up()
        return at

    def layout(self, number: int, sample: NDArray[np.uint8]) -> tuple[Layout, NDArray[np.uint8]]:
        """The layout of a sample and its payload alone."""
        if number == INLINE:
            length = _LENGTH.unpack(sample[-_LENGTH.size :].tobytes())[0]
            body = sample[: -_LENGTH.size - length]
            return pickle.loads(sample[body.size : -_LENGTH.size].tobytes()), body  # nosec B301
        return self.by_number(number), sample

    def by_number(self, number: int) -> Layout:
        """The layout of a number that is not ``INLINE``."""
        found = self._by_number.get(number)
        if found is None:
            self._catch_up()
            found = self._by_number[number]
        return found

    def trailer(self, layout: Layout) -> NDArray[np.uint8]:
        """What goes behind a sample whose layout has no number."""
        entry = pickle.dumps(layout, pickle.HIGHEST_PROTOCOL)
        return np.frombuffer(entry + _LENGTH.pack(len(entry)), np.uint8)

    def _catch_up(self) -> None:
        begin, end = self._seen, self._table.header[Header.LAYOUT_BYTES]
        if end == begin:
            return
        log = os.pread(self._file.descriptor, end - begin, LOG_OFFSET + begin)
        position = 0
        while position < len(log):
            length = _LENGTH.unpack_from(log, position)[0]
            start = position + _LENGTH.size
            layout = pickle.loads(log[start : start + length])  # nosec B301
            number = begin + position
            self._by_number[number] = layout
            self._numbers[layout] = number
            position = start + length
        self._seen = end
