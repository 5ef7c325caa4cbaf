"""Samples of the machine and of processes, read on and thinned: the older, the fewer."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from hotloop.record.samples import Columns, columns_of
from hotloop.record.schema import reading

#: Rows of one table that are kept at most; of the older half every second one goes when there are more.
MOST: Final = 480
#: Processes whose samples are kept: loader workers come and go with every epoch.
_MOST_PROCESSES: Final = 1024
#: Samples that the first look reads at most, evenly over the run; all of the last ones.
_AT_ONCE: Final = 4 * MOST


class Table:
    """Rows with growing columns."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._rows: list[Sequence[Any]] = []

    def add(self, names: list[str], row: Sequence[Any]) -> None:
        """Append a row; a column that was not there before is unknown in the rows before."""
        if names != self._names:
            self._rows = [(*old, *[None] * (len(names) - len(old))) for old in self._rows]
            self._names = names
        self._rows.append(row)
        if len(self._rows) > MOST:
            self._rows[: MOST // 2] = self._rows[: MOST // 2 : 2]

    @property
    def columns(self) -> Columns:
        """Name -> values in order of time."""
        return columns_of(self._rows, self._names)


class Samples:
    """What ``system.sqlite`` holds, as far as it was read. Raises RecordingError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._machine = Table()
        self._processes: dict[int, Table] = {}
        self._at = {"machine": 0, "process": 0}
        self._begun = False

    def read_on(self) -> None:
        """Take in what came since the last time."""
        if not self._path.exists():
            return
        with reading(self._path, "machine") as db:
            if db is None:
                return
            kept = self._kept(db)
            for names, row in self._new(db, "machine", kept):
                self._machine.add(names, row)
            for names, row in self._new(db, "process", kept):
                pid = row[names.index("pid")]
                if isinstance(pid, int):
                    table = self._processes[pid] = self._processes.pop(pid, Table())
                    table.add(names, row)
            for pid in [*self._processes][:-_MOST_PROCESSES]:  # those that were sampled last stay
                del self._processes[pid]
            self._begun = True

    def _kept(self, db: sqlite3.Connection) -> str:
        """Which moments the first look reads."""
        ((last,),) = db.execute("SELECT coalesce(max(rowid), 0) FROM machine")
        if self._begun or last <= _AT_ONCE:
            return ""
        moments = f"rowid % {last // MOST} = 0 OR rowid > {last - MOST}"
        return f" AND t_s IN (SELECT t_s FROM machine WHERE {moments})"  # nosec B608

    def _new(self, db: sqlite3.Connection, table: str, kept: str) -> list[tuple[list[str], Sequence[Any]]]:
        where = f"FROM {table} WHERE rowid > ?"
        cursor = db.execute(f"SELECT * {where}{kept} ORDER BY rowid", (self._at[table],))  # nosec B608
        names = [column[0] for column in cursor.description]
        found = [(names, row) for row in cursor]
        ((last,),) = db.execute(f"SELECT coalesce(max(rowid), 0) FROM {table}")  # nosec B608
        self._at[table] = last
        return found

    def columns(self) -> tuple[Columns, dict[int, Columns]]:
        """Of the machine, and of each process by pid, as ``record.samples`` has them."""
        processes = {pid: table.columns for pid, table in self._processes.items()}
        for columns in processes.values():
            columns.pop("pid", None)
        return self._machine.columns, processes
