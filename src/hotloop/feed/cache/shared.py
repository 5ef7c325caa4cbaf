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
from hotloop.feed.cache.table import Row, Table
from hotloop.feed.memory import SharedFile


class Shared:
    """What reading and writing both need."""

    def __init__(self, file: SharedFile, *, num_items: int) -> None:
        self.file = file
        self.table = Table(file, num_items)
        self.header = self.table.header
        self.state = self.table.one["state"]
        self.arena = SampleArena(file, self.header)
        self.layouts = Layouts(file, self.table)
        self.lock = SharedLock(file.descriptor)
        self.after_fork()
        _holds.add(self)

    def after_fork(self) -> None:
        """What belongs to one process alone: its row and its locks."""
        self.lock.after_fork()
        self._has_row = False
        self.row = memoryview(bytearray(len(Row) * 8)).cast("q")
        self._counting = threading.Lock()

    def own_row(self) -> None:
        """Have a row for this process, which it gets when it first needs one. Takes the lock."""
        if not self._has_row:
            with self.lock:
                if not self._has_row:
                    self.row = memoryview(self.table.rows[self.table.enroll()])
                    self._has_row = True

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
        self.own_row()
        with self._counting:
            self.row[Row.HITS] += len(indices)
            self.row[Row.SAVED_NS] += int(float(self.table.cost_s.take(indices).sum()) * 1e9)


_holds: weakref.WeakSet[Shared] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for hold in list(_holds):
        hold.after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
