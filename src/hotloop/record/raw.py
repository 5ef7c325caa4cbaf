"""Raw files as the probe leaves them: found, read from an offset, never trusted to be whole."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hotloop.record.recording import ROW_DTYPE, Note
from hotloop.record.rows import LONG, ROW
from hotloop.record.writer import CHUNK

_NAME: Final = re.compile(r"^(\d+)-(\d+)\.(rows|notes)$")
_KIND_AT: Final = ROW.size - 1
#: Rows are read in pieces: the file is reserved ahead of the last row, and reading the reserve is waste.
_PIECE: Final = ROW.size * 4096
#: Rows that one call reads at most: a crashed run's file may be larger than memory should be.
LIMIT: Final = 1 << 20
#: A place left empty this many rows ago is not going to be filled any more.
_FILL_BEHIND: Final = 16


@dataclass(frozen=True, kw_only=True)
class RawFiles:
    """The two files of one observed process; either may be missing."""

    folder: Path
    pid: int
    start_ns: int

    @property
    def key(self) -> str:
        """The name both files share, unique within a run."""
        return f"{self.pid}-{self.start_ns}"

    @property
    def rows(self) -> Path:
        """The file of binary rows."""
        return self.folder / f"{self.key}.rows"

    @property
    def notes(self) -> Path:
        """The file of JSON lines."""
        return self.folder / f"{self.key}.notes"

    def remove(self) -> None:
        """Delete both files."""
        self.rows.unlink(missing_ok=True)
        self.notes.unlink(missing_ok=True)


def find(folder: Path) -> list[RawFiles]:
    """Every process that left raw files in ``folder``, oldest first; empty when there is no such folder."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - called every tick, and names are all it needs
    except (FileNotFoundError, NotADirectoryError):
        return []
    keys = {(int(match[1]), int(match[2])) for name in names if (match := _NAME.match(name))}
    found = [RawFiles(folder=folder, pid=pid, start_ns=start) for pid, start in keys]
    return sorted(found, key=lambda raw: (raw.start_ns, raw.pid))


def read_rows(path: Path, offset: int, *, live: bool) -> tuple[npt.NDArray[Any], int]:
    """Rows written from byte ``offset`` on, dtype ROW_DTYPE, and the offset behind them; at most LIMIT rows.

    A place that was taken but never filled (an exception came in between) is skipped. While the writer lives,
    such a place may still be filled, so rows behind it wait until many follow; the newest row waits too.
    """
    data = _written(path, offset)
    rows = np.frombuffer(data, ROW_DTYPE)
    end = len(rows)
    if live:
        empty = np.flatnonzero(rows["kind"] == 0)
        late = empty[empty >= end - _FILL_BEHIND]
        end = int(late[0]) if len(late) else max(0, end - 1)
    taken = rows[:end]
    return taken[taken["kind"] != 0], offset + end * ROW.size


def _written(path: Path, offset: int) -> bytes:
    """Bytes from ``offset`` to the last row that was filled.

    The writer goes on in the next piece of the file where a signal handler wrote its first row while it was
    about to reserve one: what is empty before the last piece does not end the file.
    """
    found = bytearray()
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(offset)
            last = (max(1, os.fstat(file.fileno()).st_size) - 1) // CHUNK * CHUNK
            while len(found) < LIMIT * ROW.size:
                piece = file.read(_PIECE)
                found += piece[: len(piece) - len(piece) % ROW.size]
                if len(piece) < _PIECE or (offset + len(found) > last and not _last_filled(piece)):
                    break
    except FileNotFoundError:
        pass
    return bytes(found[: _last_filled(found)])


def _last_filled(piece: bytes | bytearray) -> int:
    """Bytes up to and with the last row that has a kind."""
    filled = np.flatnonzero(np.frombuffer(piece, np.uint8)[_KIND_AT :: ROW.size])
    return (int(filled[-1]) + 1) * ROW.size if len(filled) else 0


def read_notes(path: Path, offset: int) -> tuple[list[Note], int, int]:
    """Whole lines from byte ``offset``: the notes, the offset behind them, how many lines were no notes."""
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(offset)
            data = file.read()
    except FileNotFoundError:
        return [], offset, 0
    end = data.rfind(b"\n") + 1
    notes, bad = [], 0
    for line in data[:end].splitlines():
        note = parse_note(line)
        if note is None:
            bad += 1
        else:
            notes.append(note)
    return notes, offset + end, bad


def parse_note(line: bytes | str) -> Note | None:
    """The note on a line, None when it is not one."""
    try:
        note = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return note if isinstance(note, dict) and isinstance(note.get("note"), str) else None


def durations_ns(rows: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """[n] durations in nanoseconds, long intervals included."""
    scale = np.where(rows["flags"] & LONG, 1000, 1).astype(np.int64)
    result: npt.NDArray[np.int64] = rows["dur"].astype(np.int64) * scale
    return result


def last_ns(rows: npt.NDArray[Any]) -> int:
    """When the last of these rows closed, 0 without rows."""
    if not len(rows):
        return 0
    return int((rows["start"].astype(np.int64) + durations_ns(rows)).max())
