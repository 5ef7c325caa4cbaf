"""The tables of a recording, and how rows are packed into them. Any SQLite tool opens the files.

``rank-N.sqlite``, one per training process with its workers inside (``other-PID.sqlite``: a process that
reached torch but did not train, such as torchrun's agent):

* ``meta(key, value)``: ``schema`` and ``packing``.
* ``processes``: one row per process.
* ``chunks``: rows in the order they were written, see ``pack``.
* ``notes``: one JSON object each, ``kind`` is the note's type.
* ``steps``: the measured table, one row per step; columns in nanoseconds end in ``_ns``.

``system.sqlite``: ``machine(t_s, ...)`` and ``process(t_s, pid, ...)``; columns are named in
``launch.system``.

A file is written beside its place and renamed there when it is whole.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hotloop.phases import PHASES
from hotloop.record import raw
from hotloop.record.owners import Facts, Seat
from hotloop.record.raw import RawFiles
from hotloop.record.recording import ROW_DTYPE
from hotloop.record.rows import ROW, SCHEMA_VERSION
from hotloop.record.spill import release
from hotloop.record.system import Columns

#: How a chunk's rows are packed, for whoever reads the blobs without this module.
PACKING: Final = "24-byte rows; start as difference to the row before; transposed to 24 byte planes; zlib"

#: Rows in one chunk at most: enough for zlib, small enough to read one without the rest.
CHUNK_ROWS: Final = 8192
_STEPS_AT_ONCE: Final = 8192

_META: Final = "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);"
_RANK: Final = """
CREATE TABLE processes (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, pid INTEGER NOT NULL, ppid INTEGER, role TEXT, rank
    INTEGER, start_ns INTEGER, end_ns INTEGER, active INTEGER NOT NULL);
CREATE TABLE chunks (
    process INTEGER NOT NULL, seq INTEGER NOT NULL, num_rows INTEGER NOT NULL,
    start_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (process, seq));
CREATE TABLE notes (process INTEGER NOT NULL, t INTEGER, kind TEXT NOT NULL, json TEXT NOT NULL);
"""


def rank_files(folder: Path) -> list[Path]:
    """The files of processes in a run folder."""
    return sorted([*folder.glob("rank-*.sqlite"), *folder.glob("other-*.sqlite")])


@contextmanager
def _whole(path: Path, tables: str, **meta: str) -> Iterator[sqlite3.Connection]:
    """A new file, at its place once it is whole. Raises OSError, sqlite3.Error."""
    beside = path.with_name(f".{path.name}")
    beside.unlink(missing_ok=True)
    try:
        with closing(sqlite3.connect(beside)) as db:
            db.execute("PRAGMA journal_mode=MEMORY")  # what is not whole is not looked at
            db.executescript(_META + tables)
            values = {"schema": str(SCHEMA_VERSION), **meta}
            db.executemany("INSERT INTO meta VALUES (?, ?)", values.items())
            yield db
            db.commit()
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def write_rank(path: Path, processes: Sequence[tuple[Facts, Seat, RawFiles]]) -> int:
    """Write what the raw files of these processes hold; returns how many notes were damaged."""
    damaged = 0
    with _whole(path, _RANK, packing=PACKING) as db:
        for number, (facts, seat, files) in enumerate(processes, 1):
            about = (facts.key, facts.pid, facts.ppid, seat.role, seat.rank, facts.start_ns, facts.last_ns)
            db.execute("INSERT INTO processes VALUES (?,?,?,?,?,?,?,?,?)", (number, *about, facts.active))
            seq = 0
            for rows in raw.all_rows(files.rows):
                for at in range(0, len(rows), CHUNK_ROWS):
                    piece, seq = rows[at : at + CHUNK_ROWS], seq + 1
                    span = (int(piece["start"].min()), raw.last_ns(piece))
                    values = (number, seq, len(piece), *span, pack(piece))
                    db.execute("INSERT INTO chunks VALUES (?,?,?,?,?,?)", values)
            notes, bad = raw.read_notes(files.notes)
            damaged += bad
            db.executemany(
                "INSERT INTO notes VALUES (?,?,?,?)",
                ((number, note.get("t"), note["note"], json.dumps(note)) for note in notes),
            )
    return damaged


def write_system(path: Path, machine: Columns, processes: Columns) -> None:
    """Write the samples."""
    named = {"machine": machine or {"t_s": np.zeros(0)}, "process": processes or {"t_s": np.zeros(0)}}
    tables = [f"CREATE TABLE {name} ({_quoted(columns)});" for name, columns in named.items()]
    with _whole(path, "".join(tables)) as db:
        for name, columns in named.items():  # sqlite3 stores NaN as NULL
            marks = ", ".join("?" * len(columns))
            lists = [values.tolist() for values in columns.values()]
            db.executemany(f"INSERT INTO {name} VALUES ({marks})", zip(*lists, strict=True))


def holds(db: sqlite3.Connection, rank: int, pid: int | None = None) -> bool:
    """Whether a training process of this rank (and pid) is in a file."""
    question = "SELECT 1 FROM processes WHERE role='main' AND rank=? AND pid=coalesce(?, pid)"
    return db.execute(question, (rank, pid)).fetchone() is not None


def write_steps(db: sqlite3.Connection, columns: Mapping[str, npt.NDArray[Any]]) -> None:
    """Replace the steps table, see ``Store.write_steps``."""
    names = [f"{name.removesuffix('_s')}_ns" if _in_s(name, v) else name for name, v in columns.items()]
    db.execute("DROP TABLE IF EXISTS steps")
    db.execute(f"CREATE TABLE steps (step INTEGER PRIMARY KEY, {_quoted(names)})")
    marks = ", ".join("?" * (1 + len(columns)))
    num_steps = max(map(len, columns.values()), default=0)
    for at in range(0, num_steps, _STEPS_AT_ONCE):
        part = slice(at, at + _STEPS_AT_ONCE)
        values = [_plain(name, values[part]) for name, values in columns.items()]
        rows = zip(range(at, num_steps), *values, strict=False)
        db.executemany(f"INSERT INTO steps VALUES ({marks})", rows)
        for array in columns.values():
            release(array)
    db.commit()


def _quoted(names: Mapping[str, object] | Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _in_s(name: str, values: npt.NDArray[Any]) -> bool:
    return values.dtype.kind == "f" and (name.endswith("_s") or name in PHASES)


def _plain(name: str, values: npt.NDArray[Any]) -> list[Any]:
    """Values as SQLite stores them smallest: an integer takes 0 to 8 bytes there. NaN becomes NULL."""
    if _in_s(name, values):
        scaled = np.round(values.astype(np.float64) * 1e9)
        return [int(value) if value == value else None for value in scaled.tolist()]
    if values.dtype.kind == "b":
        values = values.astype(np.int64)
    result: list[Any] = values.tolist()
    return result


def pack(rows: npt.NDArray[Any]) -> bytes:
    """Rows as a blob; two thirds the size of the same rows compressed as they are."""
    work = rows.copy()
    work["start"][1:] = np.diff(rows["start"])
    planes = np.ascontiguousarray(work.view(np.uint8).reshape(-1, ROW.size).T)
    return zlib.compress(planes.tobytes(), 1)


def unpack(blob: bytes) -> npt.NDArray[Any]:
    """The rows of a blob; raises zlib.error or ValueError on a damaged one."""
    planes = np.frombuffer(zlib.decompress(blob), np.uint8).reshape(ROW.size, -1)
    rows = np.array(planes.T, order="C").view(ROW_DTYPE).reshape(-1)
    rows["start"] = np.cumsum(rows["start"], dtype=np.uint64)
    return rows
