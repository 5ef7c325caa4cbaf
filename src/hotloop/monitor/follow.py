"""Reads on in a run folder while the run goes on: the last rows of every process, the notes, thinned samples.

However long the run is, a look reads what is new, the first one the end of it and a few chunks from before.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import add
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from hotloop.errors import RecordingError
from hotloop.monitor.samples import Samples
from hotloop.record import raw, runfile
from hotloop.record import rows as row
from hotloop.record.bucket import files_of
from hotloop.record.fields import is_count, parse_note
from hotloop.record.raw import Facts
from hotloop.record.read import assembled
from hotloop.record.recording import ROW_DTYPE, Note, Recording, last_ns
from hotloop.record.schema import reading, unpack

Rows = npt.NDArray[Any]

#: Rows of all training processes that are kept: what the diagnosis of a long run is made of.
MOST_ROWS: Final = 1 << 18
_LEAST_ROWS: Final = 1 << 13
#: Chunks from before these that the first look reads, evenly over the run.
_OLD_CHUNKS: Final = 48
_MOST_POINTS: Final = 512
_POINT_ROWS: Final = 512
_MOST_ITERATORS: Final = 512
#: What these say of a loader is forgotten where so many were built after it at one place and no row names it.
_OF_LOADERS: Final = ("loader", "iterator", "batch", "leaves")
_MOST_LOADERS: Final = 64


class Point(NamedTuple):
    """What rows say: from when to when, over how long, how many steps, how many batches lay ready."""

    start_ns: int
    end_ns: int
    seen_ns: int
    steps: int
    asked: int
    ready: int

    def with_next(self, other: Point) -> Point:
        """Both together."""
        return Point(self.start_ns, other.end_ns, *map(add, self[2:], other[2:]))


@dataclass(kw_only=True)
class Followed:
    """One process: what is stored of it, and what its raw files hold beyond that."""

    facts: Facts
    end_ns: int | None = None
    points: list[Point] = field(default_factory=list)
    stored_notes: list[Note] = field(default_factory=list)
    fresh_notes: list[Note] = field(default_factory=list)
    stored: deque[Rows] = field(default_factory=deque)
    fresh: list[Rows] = field(default_factory=list)
    iterators: Rows = field(default_factory=lambda: np.zeros(0, ROW_DTYPE))  # made before ``stored``
    num_rows: int = 0  # that there are, stored
    num_counted: int = 0  # of these, those that were read
    num_left: int = 0  # of those that are not stored, those that were forgotten
    tail: bool = False
    seq: int = 0
    note_row: int = 0
    taken: tuple[int, int] = (0, 0)  # bytes of its raw files that are stored
    at: tuple[int, int] = (0, 0)  # bytes of its raw files that are read

    @property
    def notes(self) -> list[Note]:
        """Its notes, but for those of loaders long gone."""
        return self.stored_notes + self.fresh_notes

    @property
    def now(self) -> Facts:
        """What is known of it with what is not stored yet."""
        facts = replace(self.facts, updates=dict(self.facts.updates))
        for rows in self.fresh:
            facts.look_at(rows)
        return facts

    @property
    def steps(self) -> tuple[int, bool]:
        """How many steps it made, and whether that is counted: else it is reckoned from what was read."""
        counted = self.facts.steps
        if self.num_counted < self.num_rows:
            counted = round(counted * self.num_rows / max(1, self.num_counted))
        fresh, read = self.now.steps - self.facts.steps, sum(map(len, self.fresh))
        if self.num_left:
            fresh = round(fresh * (read + self.num_left) / max(1, read))
        return counted + fresh, self.num_counted >= self.num_rows and not self.num_left

    @property
    def history(self) -> list[Point]:
        """Its points, the last of what is not stored yet."""
        if not self.fresh:
            return self.points
        rows, begun = np.concatenate(self.fresh), self.facts.steps > 0
        before = self.points if begun or not self.now.steps else []
        return [*before, *_point(rows, [] if self.num_left else before, begun)]

    def keep(self, rows: Rows, most: int) -> None:
        """Take in stored rows; the oldest beyond ``most`` go."""
        self.stored.append(rows)
        left = sum(map(len, self.stored))
        while len(self.stored) > 1 and left - len(self.stored[0]) >= most:
            left -= len(self.stored[0])
            self.forget(self.stored.popleft())

    def forget(self, rows: Rows) -> None:
        """Keep of rows only which iterators began in them."""
        made = rows[rows["kind"] == row.ITER]
        self.iterators = np.concatenate([self.iterators, made])[-_MOST_ITERATORS:]
        self.tail = True

    def forget_loaders(self) -> None:
        """Forget what notes say of loaders long gone: a run of many epochs may build new ones for each."""
        built: dict[Any, dict[int, None]] = defaultdict(dict)
        for note in self.stored_notes:
            if note["note"] == "loader":
                built[note.get("where"), note.get("via")][note["id"]] = None
        gone = {number for numbers in built.values() for number in [*numbers][:-_MOST_LOADERS]}
        if not gone:
            return
        rows = np.concatenate([self.iterators, *self.stored, *self.fresh])
        gone -= set(rows["value"][rows["kind"] == row.ITER].tolist())
        passes = set(rows["obj"][rows["kind"] == row.FETCH].tolist())
        for note in self.stored_notes:
            if note["note"] == "iterator" and note["id"] in passes:
                gone.discard(note["loader"])
        self.stored_notes = [
            note
            for note in self.stored_notes
            if note["note"] not in _OF_LOADERS
            or note.get("id" if note["note"] == "loader" else "loader") not in gone
        ]

    def count(self, rows: Rows, *, follows: bool) -> None:
        """Learn from rows, and remember what they say of the speed."""
        for piece in np.array_split(rows, max(1, len(rows) // _POINT_ROWS)):
            begun = self.facts.steps > 0
            self.facts.look_at(piece)
            if not begun and self.facts.steps:
                self.points.clear()  # what was before the first step is no training
            self.points += _point(piece, self.points if follows else [], begun)
            follows = True
        if len(self.points) > _MOST_POINTS:
            old = self.points[: _MOST_POINTS // 2]
            self.points[: len(old)] = map(Point.with_next, old[::2], old[1::2])

    def observed(self, rows: bool) -> raw.Observed:
        """As the record has it, with its rows or without."""
        pieces = [self.iterators, *self.stored, *self.fresh] if rows else []
        return raw.Observed(
            facts=self.now, end_ns=self.end_ns, rows=[*filter(len, pieces)], notes=self.notes, tail=self.tail
        )


def _point(rows: Rows, before: Sequence[Point], begun: bool) -> list[Point]:
    """A point or none. Where no step was before (not ``begun``), time counts from the end of the first."""
    if not len(rows):
        return []
    facts = Facts(key="", pid=0, start_ns=0)
    facts.look_at(rows)
    kinds, flags, steps = rows["kind"], rows["flags"], facts.steps
    fed = (kinds == row.FETCH) & (flags & row.FETCH_WORKERS != 0) & (flags & row.FETCH_END == 0)
    fed &= rows["extra"] != row.U16_MAX
    start = before[-1].end_ns if before else int(rows["start"].min())
    if steps and not begun:
        updates = facts.updates
        made = kinds == row.BACKWARD
        if updates:
            made = (kinds == row.OPTIMIZER) & (rows["obj"] == max(updates, key=lambda one: updates[one]))
        start, steps = last_ns(rows[made][:1]), steps - 1
    end = max(start, last_ns(rows))
    return [Point(start, end, end - start, steps, int(fed.sum()), int(rows["extra"][fed].sum()))]


class Follower:
    """Follows one run folder; ``look`` reads what is new. Raises RecordingError of what is no recording."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run: dict[str, Any] = {}
        self.rows_read = 0
        self.warnings: list[str] = []
        self.members: dict[str, Followed] = {}
        self._samples = Samples(folder / "system.sqlite")
        self._over: set[str] = set()

    def look(self) -> None:
        """Read on. What is being written or renamed at the moment is read the next time."""
        self.run, self.warnings = runfile.read(self.folder)
        if self.run.get("parts"):
            raise RecordingError(
                f"{self.folder} is a merged run, in which nothing goes on",
                hint=f"hotloop report {self.folder}, or watch one of its parts",
            )
        found = files_of(self.folder)
        if not (self.run or found or raw.keys(self.folder / "raw")):
            raise RecordingError(
                f"{self.folder} holds no hotloop recording", hint="give the folder that `hotloop run` printed"
            )
        for path in found:
            try:
                with reading(path, "processes") as db:
                    if db is not None:
                        self._read_bucket(db)
            except RecordingError as error:
                self.warnings += [error.message] if path.exists() else []  # else it was renamed
        try:
            self._read_raw()
            self._samples.read_on()
        except (OSError, RecordingError) as error:
            self.warnings.append(str(error))

    def recording(self, *, rows: bool) -> Recording:
        """What was read, as a recording; without ``rows`` it is quickly made."""
        observed = [one.observed(rows) for one in self.members.values()]
        return assembled(self.folder, self.run, observed, self._samples.columns(), self.warnings)

    def _read_bucket(self, db: sqlite3.Connection) -> None:
        query = (
            "SELECT id, key, role, pid, start_ns, end_ns, rows_taken, notes_taken FROM processes "
            "ORDER BY role = 'worker', id"
        )
        for process, key, role, *numbers in db.execute(query).fetchall():
            pid, start_ns, end_ns, *taken = (number or 0 for number in numbers)
            if key in self._over or not (isinstance(key, str) and is_count(pid, start_ns, end_ns, *taken)):
                continue
            if role == "worker" and 0 < end_ns < self._begins_ns():
                self._over.add(key)  # what is kept of those that train begins later
                self.members.pop(key, None)
                continue
            one = self.members.get(key)
            if one is None:
                facts = Facts(key=key, pid=pid, start_ns=start_ns, last_ns=start_ns)
                one = self.members[key] = Followed(facts=facts)
            one.end_ns = end_ns or None
            if one.taken == tuple(taken):
                continue
            one.taken = one.at = (taken[0], taken[1])
            one.fresh, one.fresh_notes, one.num_left = [], [], 0
            self._read_notes(db, process, one)
            self._read_chunks(db, process, one)
            one.forget_loaders()

    def _read_notes(self, db: sqlite3.Connection, process: int, one: Followed) -> None:
        query = "SELECT rowid, json FROM notes WHERE process=? AND rowid > ? ORDER BY rowid"
        found = db.execute(query, (process, one.note_row)).fetchall()
        notes = [note for _, text in found if (note := parse_note(text)[0]) is not None]
        one.note_row = found[-1][0] if found else one.note_row
        one.stored_notes += notes
        one.facts.learn(notes)

    def _read_chunks(self, db: sqlite3.Connection, process: int, one: Followed) -> None:
        query = "SELECT seq, num_rows FROM chunks WHERE process=? AND seq > ? ORDER BY seq"
        sizes = db.execute(query, (process, one.seq)).fetchall()
        most = self._most(one)
        left, first = most, len(sizes)
        while first and left > 0:
            first -= 1
            left -= sizes[first][1]
        picked = range(0, first, max(1, -(-first // _OLD_CHUNKS)))
        if first:
            one.stored.clear()
            one.tail = True
        read = -1
        for at in (*picked, *range(first, len(sizes))):
            query = "SELECT data FROM chunks WHERE process=? AND seq=?"
            ((data,),) = db.execute(query, (process, sizes[at][0]))
            rows = raw.sound(unpack(data))
            self.rows_read += len(rows)
            one.num_counted += sizes[at][1]
            one.count(rows, follows=at == read + 1)
            one.keep(rows, most) if at >= first else one.forget(rows)
            read = at
        one.num_rows += sum(size for _, size in sizes)
        one.seq = sizes[-1][0] if sizes else one.seq

    def _most(self, one: Followed) -> int:
        """Rows of this process that are kept: all that train share them, their workers have a part."""
        training = sum(other.facts.role != "worker" for other in self.members.values())
        return max(_LEAST_ROWS, MOST_ROWS // max(1, training) // (8 if one.facts.role == "worker" else 1))

    def _begins_ns(self) -> int:
        """When the kept rows begin of the process of which most are kept; 0 where all of them are."""
        trainers = [one for one in self.members.values() if one.facts.role != "worker" and one.stored]
        return min((int(one.stored[0]["start"][0]) if one.tail else 0 for one in trainers), default=0)

    def _read_raw(self) -> None:
        folder = self.folder / "raw"
        for facts in raw.find(folder):
            if facts.key in self._over:
                continue
            one = self.members.setdefault(facts.key, Followed(facts=facts))
            rows_at, notes_at = one.at
            path = folder / facts.key
            notes, notes_at, _ = raw.read_notes(path.with_suffix(".notes"), notes_at)
            one.fresh_notes += notes
            one.facts.learn(notes)
            while True:
                rows, at = raw.read_rows(
                    path.with_suffix(".rows"), rows_at, live=not self.run.get("complete")
                )
                if at == rows_at:
                    break
                rows_at = at
                self.rows_read += len(rows)
                one.fresh.append(rows)
                if sum(map(len, one.fresh)) > self._most(one) and len(one.fresh) > 1:
                    one.num_left += len(one.fresh[0])  # of a launcher that was killed
                    one.forget(one.fresh.pop(0))
            one.at = (rows_at, notes_at)
