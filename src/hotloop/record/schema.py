"""The tables of a recording, and how rows are packed into them. Any SQLite tool opens the files.

``rank-N.sqlite``, one per training process with its workers inside (``other-PID.sqlite``: a process that
reached torch but did not train, such as torchrun's agent):

* ``meta(key, value)``: ``schema`` and ``packing``.
* ``processes``: one row per process. ``rows_taken`` and ``notes_taken`` are bytes of the raw files already in
  here.
* ``chunks``: rows in the order they were written, see ``pack``.
* ``iterators``: those of kind ITER once more, so that nobody has to look through all for them.
* ``notes``: one JSON object each, ``kind`` is the note's type.

``system.sqlite``: ``machine(t_s, ...)`` and ``process(t_s, pid, ...)``; columns are named in
``launch.system``.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hotloop.errors import RecordingError
from hotloop.record.recording import ROW_DTYPE
from hotloop.record.rows import ROW, SCHEMA_VERSION

#: How a chunk's rows are packed, for whoever reads the blobs without this module.
PACKING: Final = "24-byte rows; start as difference to the row before; transposed to 24 byte planes; zlib"

#: Rows in one chunk at most: enough for zlib, small enough to read one without the rest.
CHUNK_ROWS: Final = 8192

RANK_TABLES: Final = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS processes (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, pid INTEGER NOT NULL, ppid INTEGER, role TEXT, rank
    INTEGER, start_ns INTEGER, end_ns INTEGER,
    rows_taken INTEGER NOT NULL DEFAULT 0, notes_taken INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS chunks (
    process INTEGER NOT NULL, seq INTEGER NOT NULL, num_rows INTEGER NOT NULL,
    start_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (process, seq));
CREATE TABLE IF NOT EXISTS iterators (process INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS notes (process INTEGER NOT NULL, t INTEGER, kind TEXT NOT NULL, json TEXT NOT
NULL);
"""

SYSTEM_TABLES: Final = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS machine (t_s REAL NOT NULL);
CREATE TABLE IF NOT EXISTS process (t_s REAL NOT NULL, pid INTEGER NOT NULL);
"""


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All that is written inside gets into the file, or nothing; raises sqlite3.Error."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # after a full disk SQLite has rolled back by itself
            connection.execute("ROLLBACK")
        raise


class File:
    """A file with these tables, made when it is first written to. Raises sqlite3.Error."""

    tables = ""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open: sqlite3.Connection | None = None

    @property
    def _db(self) -> sqlite3.Connection:
        if self._open is None:
            connection = sqlite3.connect(self.path, isolation_level=None, timeout=5.0)
            try:
                # A reader never holds the writer up, and a killed writer leaves a file that opens.
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=NORMAL")
                with transaction(connection):
                    for statement in self.tables.split(";"):
                        connection.execute(statement)
                    values = {"schema": str(SCHEMA_VERSION), **self._meta()}
                    connection.executemany("INSERT OR IGNORE INTO meta VALUES (?, ?)", values.items())
            except BaseException:
                connection.close()
                raise
            self._open = connection
        return self._open

    def _meta(self) -> dict[str, str]:
        return {}

    def transaction(self) -> AbstractContextManager[None]:
        """What is written inside gets into the file as a whole."""
        return transaction(self._db)

    def close(self) -> None:
        """Close for good: one file, no journal beside it, so that it opens in a read-only folder."""
        if self._open is not None:
            # Where a reader has it open, or the disk is full, the journal stays and is read with it.
            with closing(self._open), suppress(sqlite3.Error):
                self._open.execute("PRAGMA journal_mode=DELETE")
            self._open = None


@contextmanager
def reading(path: Path, table: str) -> Iterator[sqlite3.Connection | None]:
    """A file that has this table, to read from; None of one only begun. Nothing is written beside it.

    Raises RecordingError where it is damaged or not a recording's, inside of the ``with`` too.
    """
    beside = (path.with_name(path.name + end) for end in ("-wal", "-shm", "-journal"))
    try:
        if any(os.path.lexists(one) and not one.is_file() for one in (path, *beside)):
            raise ValueError("it is no file, or what lies beside it")
        with closing(_connected(f"{path.resolve().as_uri()}?mode=ro")) as db:
            kinds = dict(db.execute("SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view')"))
            if kinds and ("view" in kinds.values() or table not in kinds):
                raise ValueError(f"it has no table {table}")
            if kinds:
                versions = db.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
                check_version(versions[0] if versions else None, path)
            yield db if kinds else None
    except (OSError, sqlite3.Error, zlib.error, ValueError, KeyError, TypeError, OverflowError) as error:
        raise RecordingError(
            f"{path} cannot be read as a recording: {error}",
            hint="give the folder that `hotloop run` printed, or one of its rank-N.sqlite files",
        ) from error


def _connected(uri: str) -> sqlite3.Connection:
    """One view of the file, while its launcher may go on writing."""
    db = sqlite3.connect(uri, uri=True, timeout=5.0)
    try:
        db.execute("PRAGMA trusted_schema=OFF")
        db.execute("BEGIN")
        db.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.Error:
        db.close()
        raise
    return db


def check_version(schema: object, path: Path) -> None:
    """Raise RecordingError unless this version of hotloop reads that schema."""
    try:
        version = int(str(schema))
    except ValueError:
        raise RecordingError(
            f"{path} does not say which schema it has", hint="give the folder that `hotloop run` printed"
        ) from None
    if version > SCHEMA_VERSION:
        raise RecordingError(
            f"{path} was written by a newer hotloop (schema {version}; this one reads {SCHEMA_VERSION})",
            hint="upgrade hotloop: pip install --upgrade hotloop",
        )


def pack(rows: npt.NDArray[Any]) -> bytes:
    """Rows as a blob; two thirds the size of the same rows compressed as they are."""
    work = rows.copy()
    work["start"][1:] = np.diff(rows["start"])
    planes = np.ascontiguousarray(work.view(np.uint8).reshape(-1, ROW.size).T)
    return zlib.compress(planes.tobytes(), 1)


def unpack(blob: bytes) -> npt.NDArray[Any]:
    """The rows of a blob; raises zlib.error or ValueError on a damaged one."""
    unpacking = zlib.decompressobj()
    data = unpacking.decompress(blob, CHUNK_ROWS * ROW.size)
    if unpacking.unconsumed_tail:
        raise ValueError("a chunk holds too many rows")
    rows = np.array(np.frombuffer(data, np.uint8).reshape(ROW.size, -1).T, order="C").view(ROW_DTYPE)
    rows = rows.reshape(-1)
    rows["start"] = np.cumsum(rows["start"], dtype=np.uint64)
    return rows
