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

    def add(self, machine: Sequence[Sample], processes: Sequence[Sample]) -> None:
        """Append samples in one transaction."""
        if not machine and not processes:
            return
        if self._db is None:
            self._db = schema.create(self.path, schema.SYSTEM_TABLES, {"start_ns": str(self.start_ns)})
        with schema.transaction(self._db):
            self._insert(self._db, "machine", machine)
            self._insert(self._db, "process", processes)

    def close(self) -> None:
        """Close; the file stands alone afterwards."""
        if self._db is not None:
            schema.close(self._db)
            self._db = None

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
            db.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(values.values()))
