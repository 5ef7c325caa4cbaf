"""One ``rank-N.sqlite``: rows and notes of a training process and its workers go in, never half of a tick."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hotloop.record import schema
from hotloop.record.fields import is_count, parse_note
from hotloop.record.raw import Facts, Observed, sound
from hotloop.record.recording import Later, empty_rows, in_turn, last_ns, release
from hotloop.record.rows import ITER

Index = npt.NDArray[np.int64]
_INDEX: Final = "SELECT seq, num_rows, start_ns, end_ns FROM chunks WHERE process=? ORDER BY seq"


def files_of(folder: Path) -> list[Path]:
    """The files of processes in a run folder; one that is renamed meanwhile is there under either name."""
    return [*sorted(folder.glob("other-*.sqlite")), *sorted(folder.glob("rank-*.sqlite"))]


class Bucket(schema.File):
    """Raises sqlite3.Error; after one, nothing of the running ``transaction`` is in the file."""

    tables = schema.RANK_TABLES

    def _meta(self) -> dict[str, str]:
        return {"packing": schema.PACKING}

    def put(self, one: Observed) -> None:
        """Write what is known of a process, what of it waits, and how many raw bytes are in with that."""
        facts = one.facts
        values = (
            facts.pid, facts.ppid, facts.role, facts.rank, facts.start_ns, one.end_ns, one.rows_read,
            one.notes_read, facts.key,
        )  # fmt: skip
        self._db.execute("INSERT OR IGNORE INTO processes (key, pid) VALUES (?,?)", (facts.key, facts.pid))
        self._db.execute(
            "UPDATE processes SET pid=?, ppid=?, role=?, rank=?, start_ns=?, end_ns=?, rows_taken=?,"
            " notes_taken=? WHERE key=?",
            values,
        )
        ((process,),) = self._db.execute("SELECT id FROM processes WHERE key=?", (facts.key,))
        if one.rows:
            self._add_rows(process, np.concatenate(one.rows))
        self._db.executemany(
            "INSERT INTO notes VALUES (?,?,?,?)",
            ((process, note.get("t"), note["note"], json.dumps(note)) for note in one.notes),
        )

    def _add_rows(self, process: int, rows: npt.NDArray[Any]) -> None:
        last = self._db.execute("SELECT coalesce(max(seq), 0) FROM chunks WHERE process=?", (process,))
        for seq, piece in enumerate(in_turn(rows, schema.CHUNK_ROWS), last.fetchone()[0] + 1):
            start = int(piece["start"].min())
            values = (process, seq, len(piece), start, last_ns(piece), schema.pack(piece))
            self._db.execute("INSERT INTO chunks VALUES (?,?,?,?,?,?)", values)
            if len(made := piece[piece["kind"] == ITER]):
                self._db.execute("INSERT INTO iterators VALUES (?,?)", (process, schema.pack(made)))

    def seat(self, role: str, rank: int) -> None:
        """Say at the end what the process was that the file is about."""
        with self.transaction():
            self._db.execute(
                "UPDATE processes SET rank=?, role=CASE role WHEN 'main' THEN ? ELSE role END", (rank, role)
            )


def read_bucket(path: Path, room: float = inf) -> list[Observed]:
    """Every process of a file, as far as it was stored; raises RecordingError. Rows of a process with more
    than ``room`` of them are read when asked for.
    """
    with schema.reading(path, "processes") as db:
        return _stored(db, path, room) if db is not None else []


def _stored(db: sqlite3.Connection, path: Path, room: float) -> list[Observed]:
    found: dict[int, Observed] = {}
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name='iterators'").fetchone():  # of an older hotloop
        room = inf
    query = "SELECT id, key, pid, start_ns, end_ns, rows_taken, notes_taken FROM processes ORDER BY id"
    for process, key, *numbers in db.execute(query):
        pid, start_ns, end_ns, rows_read, notes_read = (number or 0 for number in numbers)
        if not (is_count(pid, start_ns, end_ns, rows_read, notes_read) and isinstance(key, str)):
            raise ValueError("what it says of a process is damaged")
        index = db.execute(_INDEX, (process,)).fetchall()
        if not all(is_count(*piece) and piece[1] <= schema.CHUNK_ROWS for piece in index):
            raise ValueError("what it says of its rows is damaged")
        later = Later(np.array(index, np.int64).reshape(-1, 4), partial(_again, path, process))
        facts = Facts(key=key, pid=pid, start_ns=start_ns, last_ns=start_ns)
        one = Observed(facts=facts, end_ns=end_ns or None, rows_read=rows_read, notes_read=notes_read)
        if later.num_rows > room:
            one.later = later
            made = db.execute("SELECT data FROM iterators WHERE process=? ORDER BY rowid", (process,))
            one.rows += [sound(schema.unpack(data)) for (data,) in made]
            for piece in _chunks(db, process, later.index):
                facts.look_at(piece)
                if facts.active:  # what else it would tell is how long it lived
                    break
            facts.last_ns = max(facts.last_ns, int(later.index[:, 3].max(initial=0)))
        else:
            one.rows.append(_read(db, path.parent, process, later.index, facts.look_at))
        found[process] = one
    for process, text in db.execute("SELECT process, json FROM notes ORDER BY rowid"):
        note, whole = parse_note(text)
        found[process].bad_notes += not whole
        if note is not None:
            found[process].notes.append(note)
    for one in found.values():
        one.facts.learn(one.notes)
    return list(found.values())


def _chunks(db: sqlite3.Connection, process: int, index: Index) -> Iterator[npt.NDArray[Any]]:
    for seq in index[:, 0].tolist():
        for (data,) in db.execute("SELECT data FROM chunks WHERE process=? AND seq=?", (process, seq)):
            yield sound(schema.unpack(data))


def _read(
    db: sqlite3.Connection, folder: Path, process: int, index: Index, look: Callable[[Any], object]
) -> npt.NDArray[Any]:
    """The rows of these pieces of a process, each shown to ``look``."""
    rows, at = empty_rows(int(index[:, 1].sum()), folder), 0  # once, not as pieces beside it
    for piece in _chunks(db, process, index):
        rows[at : at + len(piece)] = piece
        at += len(piece)
        look(piece)
        release(rows)
    return rows[:at]


def _again(path: Path, process: int, index: Index) -> npt.NDArray[Any]:
    with schema.reading(path, "processes") as db:
        if db is None:
            raise ValueError("its rows are gone")
        return _read(db, path.parent, process, index, len)
