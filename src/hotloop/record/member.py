"""One observed process as its launcher follows it: what it wrote, whether it lives, what is to be stored."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hotloop.record import raw
from hotloop.record.bucket import Bucket
from hotloop.record.living import is_alive, punch
from hotloop.record.owners import Facts, Seat
from hotloop.record.recording import Note

#: Rows wait in memory until this many make a chunk worth compressing, or this long.
ENOUGH_ROWS: Final = 2048
_LONG_ENOUGH_NS: Final = 5_000_000_000
#: While nothing can be written, no more than this is read ahead.
_READ_AHEAD_ROWS: Final = 1 << 20


@dataclass(kw_only=True)
class Member:
    """How far a process's raw files are read and stored, and when it was seen. Raises OSError."""

    files: raw.RawFiles
    facts: Facts
    seat: Seat | None = None
    bucket: Bucket | None = None
    rows_read: int = 0
    notes_read: int = 0
    rows: list[npt.NDArray[Any]] = field(default_factory=list)  # read and not yet stored
    notes: list[Note] = field(default_factory=list)
    bad_notes: int = 0
    alive_ns: int = 0
    gone_ns: int = 0
    ended: bool = False  # known to have ended, whoever has its pid now
    all_read: bool = False
    removed: bool = False
    _stored_ns: int = 0
    _punched: int = 0

    @property
    def num_rows(self) -> int:
        """Rows that wait."""
        return sum(len(piece) for piece in self.rows)

    @property
    def end_ns(self) -> int | None:
        """When it ended, as near as the ticks and its own last words tell; None while it runs."""
        if not self.gone_ns:
            return None
        return min(self.gone_ns, max(self.alive_ns, self.facts.last_ns))

    @property
    def is_due(self) -> bool:
        """Whether what waits is worth a transaction now."""
        if self.gone_ns or self.num_rows >= ENOUGH_ROWS:
            return True
        return bool(self.notes or self.rows) and perf_counter_ns() - self._stored_ns >= _LONG_ENOUGH_NS

    def look(self, *, superseded: bool) -> None:
        """Read on in its files; all is read when nothing came since it was seen gone.

        ``superseded``: a newer process has its pid.
        """
        now = perf_counter_ns()
        alive = not (superseded or self.ended) and is_alive(self.files.pid)
        was_gone = self.gone_ns > 0
        if alive:
            self.alive_ns = now
        elif not was_gone:
            self.gone_ns = now
        if self.num_rows >= _READ_AHEAD_ROWS:
            return
        before = (self.rows_read, self.notes_read)
        self._read_on(live=alive)
        if (self.rows_read, self.notes_read) == before:
            self.all_read = was_gone and not alive
        elif was_gone and not self.ended:
            # It writes though its pid is gone: it lives in a process namespace where it has another.
            self.gone_ns, self.alive_ns = 0, now

    def _read_on(self, *, live: bool) -> None:
        notes, self.notes_read, bad = raw.read_notes(self.files.notes, self.notes_read)
        self.bad_notes += bad
        self.facts.learn(notes)
        self.notes += notes
        while self.num_rows < _READ_AHEAD_ROWS:
            rows, at = raw.read_rows(self.files.rows, self.rows_read, live=live)
            if at == self.rows_read:
                return
            self.rows_read = at
            self.rows.append(rows)
            self.facts.look_at(rows, raw.last_ns(rows))

    def put_into(self, bucket: Bucket) -> None:
        """Write what waits; call ``stored`` once that is committed. Raises sqlite3.Error."""
        seat = self.seat or Seat(role="other", rank=0)
        taken = (self.rows_read, self.notes_read)
        process = bucket.put(self.facts, seat.role, seat.rank, self.end_ns, taken)
        if self.rows:
            bucket.add_rows(process, np.concatenate(self.rows))
        bucket.add_notes(process, self.notes)

    def stored(self, bucket: Bucket) -> None:
        """What waited is committed: it leaves memory, and its space in the raw files is given back."""
        self.bucket = bucket
        self.rows, self.notes = [], []
        self._stored_ns = perf_counter_ns()
        if self.all_read:
            self.files.remove()
            self.removed = True
        else:
            self._punched = punch(self.files.rows, self._punched, self.rows_read)
