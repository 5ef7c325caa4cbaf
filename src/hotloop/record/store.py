"""The launching side of a recording: raw files go into SQLite while the run goes on.

The raw files are the truth until their bytes are committed; a crash at any point loses nothing, because every
file says how far into the raw files it has read. Nothing here raises once the run has begun: a full disk ends
in ``warnings`` and the raw files stay.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from time import perf_counter_ns, time
from typing import Any, Final

import psutil

from hotloop.errors import UsageError
from hotloop.record import raw, runfile
from hotloop.record.bucket import Bucket
from hotloop.record.raw import assign
from hotloop.record.recording import Note
from hotloop.record.runfile import mark
from hotloop.record.samples import Samples, SystemFile

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
        self.bad_notes = 0  # of workers that were let go
        self._gone: set[str] = set()  # their keys

    @property
    def members(self) -> Sequence[Member]:
        """Every process seen so far, but for workers that ended and are stored."""
        return tuple(self._members.values())

    def take_in(self, *, last: bool = False) -> None:
        """Read on in all raw files and store what is due; ``last`` stores everything."""
        found = [one for one in raw.find(self._folder / "raw") if one.key not in self._gone]
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
        self._let_go()

    def _let_go(self) -> None:
        """Workers of which everything is stored: a long run of short epochs starts thousands."""
        kept = {member.bucket for member in self.members if member.facts.role != "worker"}
        for member in self.members:
            if member.removed and member.facts.role == "worker" and member.bucket in kept:
                self.bad_notes += member.bad_notes
                self._gone.add(member.facts.key)
                del self._members[member.facts.key]

    def take_in_rest(self, root_pid: int, root_end_ns: int) -> None:
        """Take in until nothing more comes; ``root_pid`` is the command's own process, which has ended."""
        roots = [member for member in self.members if member.facts.pid == root_pid]
        if roots:  # the newest: a command may have replaced itself
            root = max(roots, key=lambda member: member.facts.start_ns)
            root.gone = root.ended = True
            root.alive_ns = root_end_ns
        self.take_in(last=True)
        before: list[tuple[int, int]] | None = None
        # Once more at least: a process is done with when nothing came since it was seen gone.
        while before != (before := [(member.rows_read, member.notes_read) for member in self.members]):
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


#: With less room than this an observed process cannot reserve its next piece.
_FULL: Final = 512 << 10


class Store:
    """Writes a run's folder. ``warnings``: what was not stored. ``follow`` gets rows and notes at once."""

    def __init__(self, folder: Path, follow: Follow | None = None) -> None:
        self.folder = folder
        self.raw_dir = folder / "raw"
        self.warnings: list[str] = []
        self._intake = Intake(folder, follow)
        self._system = SystemFile(folder / "system.sqlite")
        self._run: dict[str, Any] = {}

    def begin(self, command: Sequence[str], machine: Mapping[str, Any], **more: Any) -> None:
        """Make the folder and publish ``run.json``; ``more`` goes in as it is. Raises UsageError."""
        start_ns, cwd = perf_counter_ns(), os.getcwd()  # noqa: PTH109
        self._run = {
            "command": list(command),
            "cwd": cwd,
            "mark": mark(command, cwd),
            "start_ns": start_ns,
            "start_unix_s": time(),
            "exit_code": None,
            "wall_s": None,
            "complete": False,
            "warnings": [],
            "machine": dict(machine),
            **more,
        }
        self._system.start_ns = start_ns
        try:
            self.raw_dir.mkdir(parents=True, exist_ok=True)
            runfile.write(self.folder, self._run)
        except OSError as error:
            raise UsageError(
                f"cannot write a recording to {self.folder}: {error.strerror}",
                hint="give a writable folder with --out",
            ) from error

    def add_machine(self, **facts: Any) -> None:
        """Facts of the machine that were learned after the command had started."""
        self._run["machine"].update(facts)
        with suppress(OSError):  # written again at the end
            runfile.write(self.folder, self._run)

    def take_in(self, samples: Samples | None = None) -> None:
        """Move what the raw files hold so far, and ``samples`` of the system, into SQLite, at every tick."""
        try:
            if shutil.disk_usage(self.folder).free < _FULL:
                self._warn(f"the disk of {self.folder} was full for some time: steps are missing")
            self._intake.take_in()
            if samples is not None:
                self._system.add(*samples)
        except (OSError, sqlite3.Error) as error:
            self._warn(f"not all could be stored: {error}")

    @property
    def living_pids(self) -> tuple[int, ...]:
        """Observed processes that have not ended, wherever they are in the process tree."""
        return tuple(member.facts.pid for member in self._intake.members if not member.gone)

    @property
    def progress(self) -> tuple[int, int]:
        """Pid and steps so far of the living process that has trained longest; zeros before any has."""
        training = [member.facts for member in self._intake.members if not member.gone]
        return max(((one.pid, one.steps) for one in training if one.steps), key=itemgetter(1), default=(0, 0))

    def finish(self, outcome: Any) -> None:
        """Take in the rest, give every file its final name; ``run.json`` gets the command's ``outcome``."""
        self._run["without_torch"] = self._told("without-torch")
        self._run["torch_failed"] = self._told("torch-failed")
        if "patch" in self._run:
            self._run["patch"]["met"] = self._told("patch-met")
        for step in (
            partial(self._intake.take_in_rest, outcome.pid, outcome.end_ns),
            self._intake.publish,
            self._system.close,
            self._clear,
        ):
            try:
                step()
            except (OSError, sqlite3.Error) as error:
                self._warn(f"not all could be stored: {error}")
        self._run.update(
            start_ns=outcome.start_ns,
            start_unix_s=outcome.start_unix_s,
            exit_code=outcome.exit_code,
            wall_s=(outcome.end_ns - outcome.start_ns) / 1e9,
            complete=True,
        )
        bad_notes = self._intake.bad_notes + sum(member.bad_notes for member in self._intake.members)
        if bad_notes:
            self.warnings.append(f"{bad_notes} notes of the run could not be read and are left out")
        still_there = sum(one.facts.role == "main" and not one.gone for one in self._intake.members)
        if still_there:
            words = "a process that trains was" if still_there == 1 else f"{still_there} processes were"
            self.warnings.append(f"{words} still running when the command ended; what came later is missing")
        self._run["warnings"] = [*outcome.warnings, *self.warnings]
        try:
            runfile.write(self.folder, self._run)
        except OSError as error:
            self._warn(f"how the run ended could not be stored: {error}")

    def discard(self) -> None:
        """Take back ``begin``: the command did not start. What others put into the folder stays."""
        for path in (self.folder / runfile.NAME, self.raw_dir, self.folder):
            try:
                path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
            except OSError:
                return

    def _told(self, name: str) -> list[str]:
        """What processes that may have no notes left word of, each line once."""
        path = self.raw_dir / name
        try:
            found = path.read_text(encoding="utf-8", errors="replace").splitlines()
            path.unlink()
        except OSError:
            return []
        return list(dict.fromkeys(found))

    def _clear(self) -> None:
        if raw.find(self.raw_dir):
            return
        for path in self.raw_dir.iterdir():  # traces of --profile
            path.rename(self.folder / path.name)
        self.raw_dir.rmdir()

    def _warn(self, text: str) -> None:
        if text not in self.warnings and len(self.warnings) < 20:
            self.warnings.append(text)
