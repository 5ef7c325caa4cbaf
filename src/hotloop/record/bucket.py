"""One ``rank-N.sqlite`` while it is written: rows and notes go in, never half of a tick."""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hotloop.phases import PHASES
from hotloop.record import raw, schema
from hotloop.record.owners import Facts
from hotloop.record.recording import Note
from hotloop.record.spill import release

_STEPS_AT_ONCE: Final = 8192


class Bucket:
    """Raises sqlite3.Error; after one, nothing of the running ``batch`` is in the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db = schema.create(path, schema.RANK_TABLES, {"packing": schema.PACKING})

    def __enter__(self) -> Bucket:
        self._db.execute("BEGIN IMMEDIATE")
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is None:
            try:
                self._db.execute("COMMIT")
                return
            except sqlite3.Error:
                self._roll_back()
                raise
        self._roll_back()

    def _roll_back(self) -> None:
        # SQLite has rolled back by itself after a full disk.
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def put(self, facts: Facts, role: str, rank: int, end_ns: int | None, taken: tuple[int, int]) -> int:
        """Write what is known of a process and how many raw bytes (rows, notes) are in; returns its id."""
        values = (
            facts.pid, facts.ppid, role, rank, facts.start_ns, end_ns, int(facts.active), *taken,
            json.dumps(to_json(facts)), facts.key,
        )  # fmt: skip
        changed = self._db.execute(
            "UPDATE processes SET pid=?, ppid=?, role=?, rank=?, start_ns=?, end_ns=?, active=?,"
            " rows_taken=?, notes_taken=?, info=? WHERE key=?",
            values,
        )
        if changed.rowcount == 0:
            self._db.execute(
                "INSERT INTO processes (pid, ppid, role, rank, start_ns, end_ns, active, rows_taken,"
                " notes_taken, info, key) VALUES (?,?,?,?,?,?,?,?,?,?,?)",
                values,
            )
        found = self._db.execute("SELECT id FROM processes WHERE key=?", (facts.key,)).fetchone()
        return int(found[0])

    def processes(self) -> list[tuple[Facts, int, int]]:
        """Every process in here with the raw bytes of rows and notes already taken."""
        return read_processes(self._db)

    def add_rows(self, process: int, rows: npt.NDArray[Any]) -> None:
        """Append rows in the order they were written."""
        last = self._db.execute("SELECT coalesce(max(seq), 0) FROM chunks WHERE process=?", (process,))
        for seq, piece in enumerate(raw.pieces(rows, schema.CHUNK_ROWS), last.fetchone()[0] + 1):
            values = (
                process,
                seq,
                len(piece),
                int(piece["start"].min()),
                raw.last_ns(piece),
                schema.pack(piece),
            )
            self._db.execute("INSERT INTO chunks VALUES (?,?,?,?,?,?)", values)

    def add_notes(self, process: int, notes: Iterable[Note]) -> None:
        """Append notes in the order they were written."""
        self._db.executemany(
            "INSERT INTO notes VALUES (?,?,?,?)",
            ((process, note.get("t"), note["note"], json.dumps(note)) for note in notes),
        )

    def holds(self, rank: int, pid: int | None = None) -> bool:
        """Whether a training process of this rank (and pid) is in here."""
        found = self._db.execute(
            "SELECT 1 FROM processes WHERE role='main' AND rank=? AND pid=coalesce(?, pid)", (rank, pid)
        )
        return found.fetchone() is not None

    def write_steps(self, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        """Replace the steps table, see ``Store.write_steps``."""
        quoted = ", ".join(f'"{column_name(name, values)}"' for name, values in columns.items())
        num_steps = max(map(len, columns.values()), default=0)
        with self:
            self._db.execute("DROP TABLE IF EXISTS steps")
            self._db.execute(f"CREATE TABLE steps (step INTEGER PRIMARY KEY, {quoted})")
            marks = ",".join("?" * (len(columns) + 1))
            for at in range(0, num_steps, _STEPS_AT_ONCE):  # as Python's numbers they are ten times as large
                piece = slice(at, at + _STEPS_AT_ONCE)
                lists = [_plain(name, values[piece]) for name, values in columns.items()]
                self._db.executemany(
                    f"INSERT INTO steps VALUES ({marks})", zip(itertools.count(at), *lists, strict=False)
                )
                for values in columns.values():
                    release(values)

    def close(self) -> None:
        """Close; the file stands alone afterwards."""
        schema.close(self._db)


def column_name(name: str, values: npt.NDArray[Any]) -> str:
    """The name of a steps column as stored: seconds become whole nanoseconds."""
    if not _is_seconds(name, values):
        return name
    return f"{name.removesuffix('_s')}_ns"


def _is_seconds(name: str, values: npt.NDArray[Any]) -> bool:
    return values.dtype.kind == "f" and (name.endswith("_s") or name in PHASES)


def _plain(name: str, values: npt.NDArray[Any]) -> list[Any]:
    """Values as SQLite stores them smallest: an integer takes 0 to 8 bytes there. NaN becomes NULL."""
    if _is_seconds(name, values):
        scaled = np.round(values.astype(np.float64) * 1e9)
        return [int(value) if value == value else None for value in scaled.tolist()]
    if values.dtype.kind == "b":
        values = values.astype(np.int64)
    result: list[Any] = values.tolist()
    return [None if value != value else value for value in result]


def to_json(facts: Facts) -> dict[str, Any]:
    """What ``assign`` needs of a process, for the ``info`` column."""
    return {
        "parent_main_pid": facts.parent_main_pid,
        "role": facts.role,
        "rank": facts.rank,
        "worker_pids": sorted(facts.worker_pids),
        "last_ns": facts.last_ns,
    }


def read_processes(db: sqlite3.Connection) -> list[tuple[Facts, int, int]]:
    """Every process of a file with the raw bytes of rows and notes taken; raises sqlite3.Error."""
    found = db.execute(
        "SELECT key, pid, ppid, start_ns, active, rows_taken, notes_taken, info FROM processes ORDER BY id"
    )
    return [
        (_facts(key, pid, ppid, start_ns, bool(active), json.loads(info)), rows_taken, notes_taken)
        for key, pid, ppid, start_ns, active, rows_taken, notes_taken, info in found
    ]


def _facts(key: str, pid: int, ppid: int, start_ns: int, active: bool, info: dict[str, Any]) -> Facts:
    return Facts(
        key=key,
        pid=pid,
        ppid=ppid,
        start_ns=start_ns,
        active=active,
        role=info["role"],
        rank=info["rank"],
        parent_main_pid=info["parent_main_pid"],
        worker_pids=set(info["worker_pids"]),
        last_ns=info["last_ns"],
    )
