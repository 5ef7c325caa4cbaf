"""One ``rank-N.sqlite`` while it is written: rows and notes go in, never half of a tick."""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hotloop.phases import PHASES
from hotloop.record import raw, schema
from hotloop.record.owners import Facts
from hotloop.record.recording import Note
from hotloop.record.spill import in_turn, release

_STEPS_AT_ONCE: Final = 8192
#: Of ``Facts``, what the column ``info`` holds as it is.
_INFO: Final = ("parent_main_pid", "role", "rank", "last_ns")


def files_of(folder: Path) -> list[Path]:
    """The files of processes in a run folder."""
    return sorted([*folder.glob("rank-*.sqlite"), *folder.glob("other-*.sqlite")])


class Bucket:
    """Raises sqlite3.Error; after one, nothing of the running ``transaction`` is in the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db = schema.create(path, schema.RANK_TABLES, {"packing": schema.PACKING})

    def transaction(self) -> AbstractContextManager[None]:
        """What is written inside gets into the file as a whole."""
        return schema.transaction(self._db)

    def put(self, facts: Facts, role: str, rank: int, end_ns: int | None, taken: tuple[int, int]) -> int:
        """Write what is known of a process and how many raw bytes (rows, notes) are in; returns its id."""
        values = (
            facts.pid, facts.ppid, role, rank, facts.start_ns, end_ns, int(facts.active), *taken,
            json.dumps(_info(facts)), facts.key,
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
        for seq, piece in enumerate(in_turn(rows, schema.CHUNK_ROWS), last.fetchone()[0] + 1):
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
        with self.transaction():
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


def _info(facts: Facts) -> dict[str, Any]:
    """What ``assign`` needs of a process beside the columns."""
    return {**{name: getattr(facts, name) for name in _INFO}, "worker_pids": sorted(facts.worker_pids)}


def read_processes(db: sqlite3.Connection) -> list[tuple[Facts, int, int]]:
    """Every process of a file with the raw bytes of rows and notes taken; raises sqlite3.Error."""
    found = db.execute(
        "SELECT key, pid, ppid, start_ns, active, rows_taken, notes_taken, info FROM processes ORDER BY id"
    )
    return [(_facts(*columns, **json.loads(info)), rows, notes) for *columns, rows, notes, info in found]


def _facts(
    key: str, pid: int, ppid: int, start_ns: int, active: int, *, worker_pids: list[int], **info: Any
) -> Facts:
    return Facts(
        key=key, pid=pid, ppid=ppid, start_ns=start_ns, active=bool(active), worker_pids=set(worker_pids),
        **info,
    )  # fmt: skip
