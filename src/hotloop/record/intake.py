"""Raw files into SQLite while a run goes on: which process goes into which file, one transaction per file and
tick.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Final

import psutil

from hotloop.record import raw
from hotloop.record.bucket import Bucket
from hotloop.record.owners import assign
from hotloop.record.recording import Note

#: Rows wait in memory until this many make a chunk worth compressing, or this long.
ENOUGH_ROWS: Final = 2048
_LONG_ENOUGH_NS: Final = 5_000_000_000
#: While nothing can be written, no more than this is read ahead.
_READ_AHEAD_ROWS: Final = 1 << 20
_KEEP_SIZE_PUNCH_HOLE: Final = 0x01 | 0x02
#: Space is given back in pieces of this size, well behind the part that its writer has mapped.
_HOLE: Final = 1 << 20


@dataclass(kw_only=True)
class Member(raw.Observed):
    """An observed process as its launcher follows it: whether it lives, what of it is stored, and where."""

    folder: Path  # of its raw files
    bucket: Bucket | None = None
    alive_ns: int = 0
    gone: bool = False
    ended: bool = False  # known to have ended, whoever has its pid now
    all_read: bool = False
    removed: bool = False
    _stored_ns: int = 0
    _punched: int = 0

    @property
    def is_due(self) -> bool:
        """Whether what waits is worth a transaction now."""
        if self.gone or sum(map(len, self.rows)) >= ENOUGH_ROWS:
            return True
        return bool(self.notes or self.rows) and perf_counter_ns() - self._stored_ns >= _LONG_ENOUGH_NS

    def look(self, *, superseded: bool) -> None:
        """Read on in its files; all is read when nothing came since it was seen gone. Raises OSError.

        ``superseded``: a newer process has its pid.
        """
        was_gone = self.gone
        self.gone = self.ended or superseded or not _is_alive(self.facts.pid)
        full = sum(map(len, self.rows)) >= _READ_AHEAD_ROWS
        grew = not full and self.read_on(self.folder, live=not self.gone, most=_READ_AHEAD_ROWS)
        if was_gone and grew and not self.ended:
            # It writes though its pid is gone: it lives in a process namespace where it has another.
            self.gone = False
        if not self.gone:
            self.alive_ns = perf_counter_ns()
        self.all_read = self.gone and was_gone and not grew and not full
        # As near as the ticks and its own last words tell.
        self.end_ns = max(self.alive_ns, self.facts.last_ns) if self.gone else None

    def stored(self) -> None:
        """What waited is committed: it leaves memory, and its space in the raw files is given back."""
        self.rows, self.notes = [], []
        self._stored_ns = perf_counter_ns()
        files = [self.folder / f"{self.facts.key}.{name}" for name in ("rows", "notes")]
        if self.all_read:
            for file in files:
                file.unlink(missing_ok=True)
            self.removed = True
        else:
            self._punched = _punch(files[0], self._punched, self.rows_read)


#: Gets what came of a process at a tick: pieces of rows (dtype ROW_DTYPE) and notes.
Follow = Callable[[Member, Sequence[Any], Sequence[Note]], None]


class Intake:
    """The processes of one run folder and the files they go to. Raises OSError and sqlite3.Error.

    After an error nothing is lost: what was not committed is still in the raw files and in memory.
    """

    def __init__(self, folder: Path, follow: Follow | None = None) -> None:
        self._folder = folder
        self._follow = follow
        self._members: dict[str, Member] = {}

    @property
    def members(self) -> Sequence[Member]:
        """Every process seen so far."""
        return tuple(self._members.values())

    def take_in(self, *, last: bool = False) -> None:
        """Read on in all raw files and store what is due; ``last`` stores everything."""
        found = raw.find(self._folder / "raw")
        newest = {facts.pid: facts.start_ns for facts in found}
        for facts in found:
            member = self._members.setdefault(facts.key, Member(facts=facts, folder=self._folder / "raw"))
            rows, notes = len(member.rows), len(member.notes)
            member.look(superseded=newest[facts.pid] > facts.start_ns)
            if self._follow is not None:
                self._follow(member, member.rows[rows:], member.notes[notes:])
        due = [member for member in self.members if not member.removed and (last or member.is_due)]
        self._find_files(due, last=last)
        for bucket in dict.fromkeys(member.bucket for member in due if member.bucket):
            members = [member for member in due if member.bucket is bucket]
            with bucket.transaction():
                for member in members:
                    bucket.put(member)
            for member in members:
                member.stored()
            if all(member.removed for member in self.members if member.bucket is bucket):
                bucket.close()

    def take_in_rest(self, root_pid: int, root_end_ns: int) -> None:
        """Take in until nothing more comes; ``root_pid`` is the command's own process, which has ended."""
        roots = [member for member in self.members if member.facts.pid == root_pid]
        if roots:  # the newest: a command may have replaced itself
            root = max(roots, key=lambda member: member.facts.start_ns)
            root.gone = root.ended = True
            root.alive_ns = root_end_ns
        self.take_in(last=True)
        before = -1  # once more at least: a process is done with when nothing came since it was seen gone
        while before != (before := sum(member.rows_read + member.notes_read for member in self.members)):
            self.take_in(last=True)

    def publish(self) -> None:
        """Close every file, and name those of training processes by rank."""
        seats = assign(member.facts for member in self.members)
        for key, member in self._members.items():
            bucket, seat = member.bucket, seats[key]
            if bucket is None:
                continue
            if seat.role != "worker":
                bucket.seat(seat.role, seat.rank)
            bucket.close()
            # A journal that a reader keeps open belongs to the name of its file.
            if seat.role == "main" and not bucket.path.with_name(f"{bucket.path.name}-wal").exists():
                bucket.path = bucket.path.rename(self._free_path(f"rank-{seat.rank}"))

    def _find_files(self, due: Sequence[Member], *, last: bool) -> None:
        """Every process a file, a worker that of its trainer; one whose trainer is not known yet waits."""
        if all(member.bucket for member in due):
            return
        seats = assign(member.facts for member in self.members)
        for member in due:
            owner = member
            if member.facts.role == "worker":
                key = seats[member.facts.key].owner
                if key is None and not last:
                    continue
                owner = self._members[key] if key else member
            if owner.bucket is None:
                owner.bucket = Bucket(self._free_path(f"other-{owner.facts.pid}"))
            member.bucket = member.bucket or owner.bucket

    def _free_path(self, name: str) -> Path:
        path, number = self._folder / f"{name}.sqlite", 1
        taken = {member.bucket.path for member in self.members if member.bucket}
        while path in taken:
            number += 1
            path = self._folder / f"{name}-{number}.sqlite"
        return path


def _is_alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not: it writes no more); yes where that cannot be asked."""
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return True


def _punch(path: Path, start: int, end: int) -> int:
    """Give back the space of a file's bytes from ``start`` up to ``end``; returns how far that went.

    The file keeps its size and its writer's offsets. Where the file system cannot do it the space stays
    taken.
    """
    upto = end - end % _HOLE
    if upto <= start:
        return start
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return start
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
        libc.fallocate(handle, _KEEP_SIZE_PUNCH_HOLE, start, upto - start)
    finally:
        os.close(handle)
    return upto
