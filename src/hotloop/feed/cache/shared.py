"""One process's hold on a cache: the shared parts mapped, its row of counters, the lock."""

from __future__ import annotations

import os
import threading
import weakref

import numpy as np
from numpy.typing import NDArray

from hotloop.feed.cache.arena import SampleArena
from hotloop.feed.cache.layouts import Layouts
from hotloop.feed.cache.lock import SharedLock
from hotloop.feed.cache.table import Header, Row, Table
from hotloop.feed.memory import SharedFile

_LARGEST_LAYOUT_LOG_BYTES = 1 << 20


class Shared:
    """What reading and writing both need."""

    def __init__(self, file: SharedFile, *, num_items: int) -> None:
        self.file = file
        self.table = Table(file, num_items)
        self.header = self.table.header
        self.state = self.table.one["state"]
        self.arena = SampleArena(file, self.header)
        log = min(_LARGEST_LAYOUT_LOG_BYTES, self.header[Header.LIMIT] // 64)
        self.layouts = Layouts(file, self.table, log)
        self.lock = SharedLock(file.descriptor)
        self.after_fork()
        _holds.add(self)

    def after_fork(self) -> None:
        """What belongs to one process alone: its row and the lock of its counters."""
        self._row_number = -1
        self.row = memoryview(bytearray(len(Row) * 8)).cast("q")
        self._counting = threading.Lock()

    def own_row(self) -> int:
        """The number of this process's row, which it gets when it first needs one. Takes the lock."""
        if self._row_number < 0:
            with self.lock:
                if self._row_number < 0:
                    number = self.table.enroll()
                    self.row = memoryview(self.table.rows[number])
                    self._row_number = number
        return self._row_number

    def count(self, index: int, *, hit: bool) -> None:
        """One reading."""
        self.own_row()
        with self._counting:
            if hit:
                self.row[Row.HITS] += 1
                self.row[Row.SAVED_NS] += int(self.table.one["cost_s"][index] * 1e9)
            else:
                self.row[Row.MISSES] += 1

    def count_hits(self, indices: NDArray[np.int64]) -> None:
        """Many readings, all of them found."""
        if len(indices):
            self.count_found(len(indices), float(self.table.cost_s[indices].mean(dtype=np.float64)) * 1e9)

    def count_found(self, num: int, each_ns: float) -> None:
        """So many readings, which saved so much each."""
        if self._row_number < 0:
            self.own_row()
        with self._counting:
            self.row[Row.HITS] += num
            self.row[Row.SAVED_NS] += int(num * each_ns)


_holds: weakref.WeakSet[Shared] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for hold in list(_holds):
        hold.after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
