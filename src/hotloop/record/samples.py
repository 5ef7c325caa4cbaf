"""``system.sqlite``: samples of the machine and of each process."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hotloop.record import schema
from hotloop.record.recording import Process, Recording

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
    return columns_of(cursor.fetchall(), [column[0] for column in cursor.description])


def columns_of(rows: Sequence[Sequence[Any]], names: Sequence[str]) -> Columns:
    """[rows] of each name; what is no number is missing."""
    try:
        table = np.array(rows, np.float64)
    except (TypeError, ValueError):  # a foreign recording holds text, or bytes
        known = [[one if isinstance(one, int | float) else None for one in row] for row in rows]
        table = np.array(known, np.float64)
    return dict(zip(names, table.reshape(len(rows), len(names)).T, strict=True))


Line = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]


def total(processes: Iterable[Mapping[str, Any]], column: str, *, whole: bool = True) -> Line | None:
    """Times and the sum of a column over processes; a process counts only while it lived.

    A process that lacks the column makes a ``whole`` sum None: a sum with holes in it would be a lie. Else it
    is left out.
    """
    known = []
    for item in processes:
        times, values = np.asarray(item.get("t_s", ()), float), np.asarray(item.get(column, ()), float)
        if not len(times):
            continue
        if len(values) == len(times) and np.isfinite(values).any():
            known.append((times, values))
        elif whole:
            return None
    if not known:
        return None
    at = np.unique(np.concatenate([times for times, _ in known]))
    summed = np.zeros(len(at))
    for times, values in known:
        finite = np.isfinite(values)
        lived = (at >= times[0]) & (at <= times[-1])
        summed += np.where(lived, np.interp(at, times[finite], values[finite]), 0.0)
    return at, summed


def resident(processes: Sequence[Mapping[str, Any]]) -> Line | None:
    """Memory of processes together: shared pages divided among their users, else resident, where the largest
    was not sampled so. One that lived too short is left out: resident, it would count shared pages again.
    """
    largest = max(processes, key=lambda one: finite(one.get("rss_bytes")).max(initial=0.0), default={})
    if len(finite(largest.get("pss_bytes"))):
        return total(processes, "pss_bytes", whole=False)
    return total(processes, "rss_bytes")


def finite(column: Any) -> npt.NDArray[np.float64]:
    """Of a sampled column, if it was sampled, the values that are there."""
    found: npt.NDArray[np.float64] = np.asarray(() if column is None else column, float)
    return found[np.isfinite(found)]


def at_times(line: Line | None, times: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """The values of a line at other times, 0 outside of it."""
    return np.interp(times, *line, left=0.0, right=0.0) if line else np.zeros(len(times))


def sampled(recording: Recording, processes: Iterable[Process]) -> list[Mapping[str, Any]]:
    """The sampled columns of these processes, of those that were sampled."""
    found = (recording.process_system.get(process.pid) for process in processes)
    return [columns for columns in found if columns]


def device_peak(recording: Recording) -> float | None:
    """The most memory that any rank held on its device, in bytes."""
    notes = (note for process in recording.ranks for note in process.notes.get("memory", ()))
    return max((float(note["device_peak"]) for note in notes if note.get("device_peak")), default=None)
