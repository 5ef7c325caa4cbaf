"""``system.sqlite``: samples of the machine and of each process."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hotloop.record import schema

Sample = Mapping[str, float]
#: Samples of the machine and of processes: mappings with ``t_ns`` and, for processes, ``pid``.
Samples = tuple[Sequence[Sample], Sequence[Sample]]
Columns = dict[str, npt.NDArray[Any]]


class SystemFile(schema.File):
    """Columns appear as they come. ``t_s`` counts from ``start_ns``."""

    tables = schema.SYSTEM_TABLES
    start_ns = 0

    def _meta(self) -> dict[str, str]:
        return {"start_ns": str(self.start_ns)}

    def add(self, machine: Sequence[Sample], processes: Sequence[Sample]) -> None:
        """Append samples in one transaction."""
        if machine or processes:
            with self.transaction():
                self._insert(self._db, "machine", machine)
                self._insert(self._db, "process", processes)

    def _insert(self, db: sqlite3.Connection, table: str, samples: Sequence[Sample]) -> None:
        known = {row[1] for row in db.execute(f"PRAGMA table_info({table})")}
        for sample in samples:
            values = {name: value for name, value in sample.items() if name != "t_ns" and value == value}
            values["t_s"] = (sample["t_ns"] - self.start_ns) / 1e9
            for name in [name for name in values if name not in known]:
                db.execute(f'ALTER TABLE {table} ADD COLUMN "{name}" REAL')
                known.add(name)
            names = ", ".join(f'"{name}"' for name in values)
            marks = ", ".join("?" * len(values))
            db.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(values.values()))  # nosec B608


def read_samples(path: Path, start_ns: int) -> tuple[Columns, dict[int, Columns]]:
    """Columns of the machine and of each process by pid, in seconds since ``start_ns``.

    Raises RecordingError.
    """
    if not os.path.lexists(path):
        return {}, {}
    with schema.reading(path, "machine") as db:
        if db is None:
            return {}, {}
        (origin,) = db.execute("SELECT value FROM meta WHERE key = 'start_ns'").fetchone() or (0,)
        shift_s = (int(origin) - start_ns) / 1e9 if start_ns else 0.0
        machine, everyone = (_table(db, name) for name in ("machine", "process"))
    for columns in (machine, everyone):
        columns["t_s"] = columns["t_s"] + shift_s
    pids = everyone.pop("pid", np.zeros(0))
    by_pid = {
        int(pid): {name: values[pids == pid] for name, values in everyone.items()}
        for pid in np.unique(pids[np.isfinite(pids)])
    }
    return machine, by_pid


def _table(db: sqlite3.Connection, name: str) -> Columns:
    cursor = db.execute(f"SELECT * FROM {name} ORDER BY t_s")  # nosec B608
    names = [column[0] for column in cursor.description]
    table = numbers(cursor.fetchall(), len(names))
    return {name: table[:, number] for number, name in enumerate(names)}


def numbers(rows: Sequence[Sequence[Any]], width: int) -> npt.NDArray[Any]:
    """[rows, width]; what is no number is missing."""
    try:
        table = np.array(rows, np.float64)
    except (TypeError, ValueError):  # a foreign recording holds text, or bytes
        known = [[one if isinstance(one, int | float) else None for one in row] for row in rows]
        table = np.array(known, np.float64)
    return table.reshape(len(rows), width)
