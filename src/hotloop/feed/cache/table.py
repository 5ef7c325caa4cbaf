"""What all processes of a cache know together: a header, who takes part, and one row of columns per sample.

The columns lie one after the other in shared memory, so that a batch of indices is looked up with a few
vectorised reads. A sample is READY or not, and stays so; a reader needs no lock.
"""

from __future__ import annotations

import os
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotloop.feed.cache.process import is_alive, own_start
from hotloop.feed.errors import CacheError
from hotloop.feed.memory import PAGE_BYTES, SharedFile, round_up

MAGIC = 0x686F_746C_6F6F_7032
MAX_PROCESSES = 1024

READY = 1


class Header(IntEnum):
    """Which of the header's 64-bit numbers is which."""

    MAGIC = 0
    NUM_ITEMS = 1
    MAX_BYTES = 2  # what all ranks together may take
    LIMIT = 3  # what those that have met may take
    RANKS = 4
    STOPPED = 7  # 1 + the sample that must not be cached, for which nothing is served any more
    FRONTIER = 8  # bytes of the arena that are reserved
    USED = 9  # bytes of the arena that were ever handed out
    OVERHEAD = 10  # bytes reserved outside the arena
    LAYOUT_BYTES = 11
    PAUSED_UNTIL_NS = 12
    IS_PAUSED = 13  # the arena could not grow when it was last asked to
    LOOKED_NS = 14  # when somebody last looked whether memory is short
    FINGERPRINT = 16  # and the three after it


class Row(IntEnum):
    """Which number of a process's row is which."""

    PID = 0
    START = 1
    HITS = 2
    MISSES = 3
    SAVED_NS = 4


_COLUMNS: tuple[tuple[str, type[np.generic]], ...] = (
    ("offset", np.int64),
    ("num_bytes", np.int64),
    ("layout", np.uint32),
    ("cost_s", np.float32),
    ("state", np.uint8),
)

_HEADER_BYTES = 512
_ROWS_BYTES = MAX_PROCESSES * len(Row) * 8


def table_bytes(num_items: int) -> int:
    """Memory the table of so many samples takes."""
    per_item = sum(np.dtype(kind).itemsize for _, kind in _COLUMNS)
    return round_up(_HEADER_BYTES + _ROWS_BYTES + per_item * num_items + 64 * len(_COLUMNS))


class Table:
    """The shared columns, as numpy arrays for batches and as memoryviews for single samples."""

    offset: NDArray[np.int64]
    num_bytes: NDArray[np.int64]
    layout: NDArray[np.uint32]
    cost_s: NDArray[np.float32]
    state: NDArray[np.uint8]

    def __init__(self, file: SharedFile, num_items: int) -> None:
        self.num_items = num_items
        memory = file.map(table_bytes(num_items)).array()
        self.header = memoryview(memory[:_HEADER_BYTES]).cast("q")  # type: ignore[arg-type]
        rows = memory[_HEADER_BYTES : _HEADER_BYTES + _ROWS_BYTES]
        self.rows = rows.view(np.int64).reshape(MAX_PROCESSES, len(Row))
        self.one: dict[str, memoryview] = {}
        position = _HEADER_BYTES + _ROWS_BYTES
        for name, kind in _COLUMNS:
            column = memory[position : position + num_items * np.dtype(kind).itemsize].view(kind)
            setattr(self, name, column)
            self.one[name] = memoryview(column)  # type: ignore[arg-type]
            position = round_up(position + column.nbytes, 64)

    @property
    def fingerprint(self) -> bytes:
        """What samples these are."""
        first = Header.FINGERPRINT
        return bytes(self.header[first : first + 4])

    def begin(self, *, max_bytes: int, ranks: int, fingerprint: bytes) -> None:
        """Fill the header of a table that is new; the magic number last."""
        header, first = self.header, Header.FINGERPRINT
        header[Header.NUM_ITEMS] = self.num_items
        header[Header.MAX_BYTES] = max_bytes
        header[Header.LIMIT] = max_bytes // ranks
        header[Header.RANKS] = ranks
        header[Header.OVERHEAD] = table_bytes(self.num_items)
        header[Header.LAYOUT_BYTES] = PAGE_BYTES
        for position in range(4):
            word = fingerprint[8 * position : 8 * position + 8]
            header[first + position] = int.from_bytes(word, "little", signed=True)
        header[Header.MAGIC] = MAGIC

    def enroll(self) -> int:
        """A row for this process; under the lock. A dead process's row goes on counting.

        Raises:
            CacheError: more than ``MAX_PROCESSES`` take part.
        """
        for number, (pid, start) in enumerate(self.rows[:, :2].tolist()):
            if not pid or not is_alive(pid, start):
                self.rows[number, :2] = os.getpid(), own_start()
                return number
        raise CacheError(f"more than {MAX_PROCESSES} processes share one cache")

    def __reduce__(self) -> Any:
        raise TypeError("a table is mapped anew by each process")
