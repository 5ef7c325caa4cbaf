"""Evict what is needed again last (Belady 1966), for orders that are known ahead.

Of epochs that visit every sample once it hits as much as ``keep``; it pays where samples repeat (sampling
with replacement) and where shards are dealt out anew to machines.
"""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

from hotloop.feed.cache.policies.simple import Keep
from hotloop.feed.cache.process import is_alive, own_start
from hotloop.feed.cache.table import Header, Table
from hotloop.feed.memory import PAGE_BYTES, SharedFile, round_up

#: Where the plans lie in the shared file: one index page, then one stretch per plan.
PLANS_OFFSET = 1 << 42
PLAN_STRIDE = 1 << 36

MAX_PLANS = 64
_PID, _START, _LENGTH, _PROGRESS, _CAPACITY = range(5)
_INDEX_BYTES = MAX_PLANS * 8 * 8

NEVER = float("inf")


def plan_bytes(num_items: int, ranks: int) -> int:
    """What is set aside for plans: of every rank one that is as long as the dataset."""
    return round_up(_INDEX_BYTES) + ranks * round_up(4 * (3 * num_items + 1))


class Clairvoyant(Keep):
    """Knows every rank's order of reading; without a plan it keeps what it has.

    A plan counts for the process that made it and for the workers that this process started. Two workers that
    read the same sample at the same moment may count one reading: it is then held a little too long.
    """

    evicts = True

    def __init__(self, table: Table, file: SharedFile) -> None:
        super().__init__(table, file)
        self._file = file
        self._index: NDArray[np.int64] | None = None
        self._generation = 0
        self._plans: list[_Plan] = []
        self._own: _Plan | None = None
        self.session = (os.getpid(), own_start())

    def plan(self, indices: NDArray[np.int64]) -> None:
        """From now on this process and its workers read these samples in this order. Under the lock.

        Of a plan that there is no memory for the beginning counts, or nothing.
        """
        if (index := self._mapped_index(make=True)) is None:
            return
        number = _slot(index, self.session)
        indices = indices[: self._room_for(index, number, len(indices))]
        index[number, _LENGTH] = 0
        index[number, _PROGRESS] = 0
        index[number, [_PID, _START]] = self.session
        if len(indices):
            _Plan(self._file, index, number, self._table.num_items, len(indices)).fill(indices)
            index[number, _LENGTH] = len(indices)
        self._table.header[Header.PLAN_GENERATION] += 1

    def _room_for(self, index: NDArray[np.int64], number: int, length: int) -> int:
        """Make a place for a plan; how long it may be."""
        header, fixed = self._table.header, 4 * (2 * self._table.num_items + 1)
        had = int(index[number, _CAPACITY])
        free = max(0, header[Header.LIMIT] - header[Header.OVERHEAD] - header[Header.FRONTIER])
        most = had + (header[Header.PLAN_ROOM] + free) // PAGE_BYTES * PAGE_BYTES
        length = max(0, min(length, (most - fixed) // 4))
        more = round_up(fixed + 4 * length) - had
        if length and more > 0:
            try:
                self._file.reserve(had + more, offset=PLANS_OFFSET + (number + 1) * PLAN_STRIDE)
            except OSError:
                return max(0, (had - fixed) // 4)
            self._charge(more)
            index[number, _CAPACITY] = had + more
        return length

    def _charge(self, num_bytes: int) -> None:
        """Take memory from what was set aside, then from what is free."""
        header = self._table.header
        set_aside = min(num_bytes, header[Header.PLAN_ROOM])
        header[Header.PLAN_ROOM] -= set_aside
        header[Header.OVERHEAD] += num_bytes - set_aside

    def used(self, items: NDArray[np.int64]) -> None:
        """Move on to the next reading of each of these samples."""
        self._catch_up()
        if self._own is not None:
            self._own.advance(items)

    def urgency(self, items: NDArray[np.int64]) -> NDArray[np.float64]:
        """Readings until a sample is read again by any rank; infinite if no plan reads it."""
        self._catch_up()
        if not self._plans:
            return np.zeros(len(items))
        distances = [plan.distance(items) for plan in self._plans]
        nearest: NDArray[np.float64] = np.minimum.reduce(distances)
        return nearest

    def threshold(self, item: int) -> float:
        """Displace what is needed later than this."""
        return float(self.urgency(np.array([item]))[0])

    def _mapped_index(self, *, make: bool = False) -> NDArray[np.int64] | None:
        if self._index is None:
            if make and not self._table.header[Header.PLAN_GENERATION]:
                try:
                    self._file.reserve(_INDEX_BYTES, offset=PLANS_OFFSET)
                except OSError:
                    return None
                self._charge(round_up(_INDEX_BYTES))
            memory = self._file.map(round_up(_INDEX_BYTES), offset=PLANS_OFFSET).array()
            self._index = memory[:_INDEX_BYTES].view(np.int64).reshape(MAX_PLANS, 8)
        return self._index

    def _catch_up(self) -> None:
        generation = self._table.header[Header.PLAN_GENERATION]
        if generation == self._generation:
            return
        index = self._mapped_index()
        assert index is not None
        plans, own = [], None
        # Read once: a plan that is being replaced has no length for a moment, and another generation soon.
        for number, length in enumerate(index[:, _LENGTH].tolist()):
            if not length:
                continue
            plan = _Plan(self._file, index, number, self._table.num_items, length)
            plans.append(plan)
            if tuple(index[number, [_PID, _START]].tolist()) == self.session:
                own = plan
        self._plans, self._own = plans, own
        self._generation = generation


class _Plan:
    """One order of reading: for each sample the places where it comes, and how many of them have passed."""

    def __init__(
        self, file: SharedFile, index: NDArray[np.int64], number: int, num_items: int, length: int
    ) -> None:
        num_bytes = round_up(4 * (2 * num_items + 1 + length))
        memory = file.map(num_bytes, offset=PLANS_OFFSET + (number + 1) * PLAN_STRIDE).array()
        words = memory.view(np.uint32)
        self._progress = index[number, _PROGRESS : _PROGRESS + 1]
        self._starts = words[: num_items + 1]
        self._cursor = words[num_items + 1 : 2 * num_items + 1]
        self._places = words[2 * num_items + 1 : 2 * num_items + 1 + length]

    def fill(self, indices: NDArray[np.int64]) -> None:
        counts = np.bincount(indices, minlength=len(self._cursor))
        self._starts[0] = 0
        self._starts[1:] = np.cumsum(counts)
        self._cursor[:] = self._starts[:-1]
        self._places[:] = np.argsort(indices, kind="stable")

    def advance(self, items: NDArray[np.int64]) -> None:
        if not len(items):
            return
        reached = int(self._places[np.minimum(self._cursor[items], len(self._places) - 1)].max())
        np.add.at(self._cursor, items, 1)
        if reached > self._progress[0]:
            self._progress[0] = reached

    def distance(self, items: NDArray[np.int64]) -> NDArray[np.float64]:
        cursor = self._cursor[items]
        place = self._places[np.minimum(cursor, len(self._places) - 1)].astype(np.float64)
        return np.where(cursor < self._starts[items + 1], place - float(self._progress[0]), NEVER)


def _slot(index: NDArray[np.int64], session: tuple[int, int]) -> int:
    """The session's own place, or a free one, or one whose process is gone."""
    holders = [(int(pid), int(start)) for pid, start in index[:, [_PID, _START]]]
    for wanted in (lambda holder: holder == session, lambda holder: not is_alive(*holder)):
        for number, holder in enumerate(holders):
            if wanted(holder):
                return number
    return 0
