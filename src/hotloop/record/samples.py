"""``system.sqlite`` while it is written: samples of the machine and of each process."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

from hotloop.record import schema

Sample = Mapping[str, float]
#: Samples of the machine and of processes: mappings with ``t_ns`` and, for processes, ``pid``.
Samples = tuple[Sequence[Sample], Sequence[Sample]]


class SystemFile:
    """Opened at the first sample; columns appear as they come. ``t_s`` counts from ``start_ns``.

    Raises sqlite3.Error.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.start_ns = 0
        self._db: sqlite3.Connection | None = None
        self._columns: dict[str, set[str]] = {"machine": {"t_s"}, "process": {"t_s", "pid"}}

    def add(self, machine: Sequence[Sample], processes: Sequence[Sample]) -> None:
        """Append samples in one transaction."""
        if not machine and not processes:
            return
        if self._db is None:
            self._db = schema.create(self.path, schema.SYSTEM_TABLES, {"start_ns": str(self.start_ns)})
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        try:
            self._insert(db, "machine", machine)
            self._insert(db, "process", processes)
            db.execute("COMMIT")
        except sqlite3.Error:
            if db.in_transaction:
                db.execute("ROLLBACK")
            self._columns = {"machine": {"t_s"}, "process": {"t_s", "pid"}}
            raise

    def close(self) -> None:
        """Close; the file stands alone afterwards."""
        if self._db is not None:
            schema.close(self._db)
            self._db = None

    def _insert(self, db: sqlite3.Connection, table: str, samples: Sequence[Sample]) -> None:
        for sample in samples:
            values = {name: value for name, value in sample.items() if name != "t_ns" and value == value}
            values["t_s"] = (sample["t_ns"] - self.start_ns) / 1e9
            new = [name for name in values if name not in self._columns[table]]
            if new:
                schema.add_columns(db, table, new)
                self._columns[table].update(new)
            names = ", ".join(f'"{name}"' for name in values)
            marks = ", ".join("?" * len(values))
            db.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(values.values()))
