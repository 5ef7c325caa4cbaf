"""The launching side of a recording: raw files go into SQLite while the run goes on.

The raw files are the truth until their bytes are committed; a crash at any point loses nothing, because every
file says how far into the raw files it has read. Nothing here raises once the run has begun: a full disk ends
in ``warnings`` and the raw files stay.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter_ns, time
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from hotloop.errors import UsageError
from hotloop.record import raw, runfile
from hotloop.record.bucket import Bucket
from hotloop.record.living import is_alive, parent_of, punch
from hotloop.record.owners import Facts, Seat, assign
from hotloop.record.recording import Note
from hotloop.record.rows import ROW
from hotloop.record.samples import Samples, SystemFile

#: Rows wait in memory until this many make a chunk worth compressing, or this long.
_ENOUGH_ROWS: Final = 2048
_LONG_ENOUGH_NS: Final = 5_000_000_000
#: A process that shows no work (a launcher's agent) gets a file of its own once it has this much to store.
_TOO_MUCH_TO_HOLD: Final = 1 << 20
#: With less room than this an observed process cannot reserve its next piece.
_FULL: Final = 512 << 10
#: While nothing can be written, no more than this is read ahead.
_READ_AHEAD_ROWS: Final = 1 << 20


class Ending(Protocol):
    """What ``launch.command`` says about how the command ended."""

    @property
    def exit_code(self) -> int: ...  # noqa: D102
    @property
    def pid(self) -> int: ...  # noqa: D102
    @property
    def start_ns(self) -> int: ...  # noqa: D102
    @property
    def end_ns(self) -> int: ...  # noqa: D102
    @property
    def start_unix_s(self) -> float: ...  # noqa: D102
    @property
    def warnings(self) -> Sequence[str]: ...  # noqa: D102


@dataclass(kw_only=True)
class _Member:
    """One observed process: how far its files are read, what waits to be written, and when it was seen."""

    files: raw.RawFiles
    facts: Facts
    rows_read: int = 0
    notes_read: int = 0
    rows_in: int = 0
    notes_in: int = 0
    punched: int = 0
    rows: list[npt.NDArray[Any]] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    seat: Seat | None = None
    bucket: Bucket | None = None
    gone_ns: int = 0
    ended: bool = False  # known to have ended, whoever has its pid now
    alive_ns: int = 0
    stored_ns: int = 0
    all_read: bool = False
    removed: bool = False

    @property
    def num_rows(self) -> int:
        return sum(len(piece) for piece in self.rows)

    @property
    def end_ns(self) -> int | None:
        """When it ended, as near as the ticks and its own last words tell; None while it runs."""
        if not self.gone_ns:
            return None
        return min(self.gone_ns, max(self.alive_ns, self.facts.last_ns))


class Store:
    """Writes one run's folder. ``warnings`` says in words what could not be stored."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.raw_dir = folder / "raw"
        self.warnings: list[str] = []
        self._lock = runfile.Lock(self.raw_dir)
        self._members: dict[str, _Member] = {}
        self._buckets: dict[str, Bucket] = {}
        self._parents: dict[int, int] = {}
        self._system = SystemFile(folder / "system.sqlite")
        self._run: dict[str, Any] = {}
        self._bad_notes = 0

    # -- a run --------------------------------------------------------------------------------------------

    def begin(self, command: Sequence[str], machine: Mapping[str, Any], **more: Any) -> None:
        """Make the folder and publish ``run.json``; ``more`` goes in as it is. Raises UsageError."""
        start_ns = perf_counter_ns()
        self._run = {
            "command": list(command),
            "cwd": os.getcwd(),  # noqa: PTH109
            "start_ns": start_ns,
            "start_unix_s": time(),
            "exit_code": None,
            "wall_s": None,
            "complete": False,
            "system_id": runfile.system_id(),
            "launcher_pid": os.getpid(),
            "warnings": [],
            "machine": dict(machine),
            **more,
        }
        self._system.start_ns = start_ns
        try:
            self.raw_dir.mkdir(parents=True, exist_ok=True)
            if not self._lock.take():
                raise UsageError(
                    f"{self.folder} is in use by another run", hint="give another folder with --out"
                )
            if raw.find(self.raw_dir) or self._sqlite_files() or (self.folder / runfile.NAME).exists():
                raise UsageError(
                    f"{self.folder} already holds a recording", hint="give another folder with --out"
                )
            runfile.write(self.folder, self._run)
        except OSError as error:
            raise UsageError(
                f"cannot write a recording to {self.folder}: {error.strerror}",
                hint="give a writable folder with --out",
            ) from error

    def add_machine(self, **facts: Any) -> None:
        """Facts of the machine that were learned after the command had started."""
        self._run["machine"].update(facts)

    def take_in(self, samples: Samples | None = None) -> None:
        """Move what the raw files hold so far, and ``samples`` of the system, into SQLite, at every tick."""
        try:
            if shutil.disk_usage(self.folder).free < _FULL:
                self._warn(f"the disk of {self.folder} was full for some time: steps are missing")
            self._take_in(last=False)
            if samples is not None:
                self._system.add(*samples)
        except (OSError, sqlite3.Error) as error:
            self._warn(f"not all could be stored: {error}")

    @property
    def living_pids(self) -> tuple[int, ...]:
        """Observed processes that have not ended, wherever they are in the process tree."""
        return tuple(member.facts.pid for member in self._members.values() if not member.gone_ns)

    def finish(self, outcome: Ending) -> None:
        """Take in the rest, give every file its final name, and say in ``run.json`` how it ended."""
        self._close(outcome.pid, outcome.end_ns)
        self._run.update(
            start_ns=outcome.start_ns,
            start_unix_s=outcome.start_unix_s,
            exit_code=outcome.exit_code,
            wall_s=(outcome.end_ns - outcome.start_ns) / 1e9,
            complete=True,
        )
        if self._bad_notes:
            self.warnings.append(f"{self._bad_notes} notes of the run could not be read and are left out")
        still_there = [
            member for member in self._members.values() if member.facts.role == "main" and not member.gone_ns
        ]
        if still_there:
            words = (
                "a process that trains was" if len(still_there) == 1 else f"{len(still_there)} processes were"
            )
            self.warnings.append(f"{words} still running when the command ended; what came later is missing")
        self._run["warnings"] = [*outcome.warnings, *self.warnings]
        try:
            runfile.write(self.folder, self._run)
        except OSError as error:
            self._warn(f"how the run ended could not be stored: {error}")

    def discard(self) -> None:
        """Take back ``begin``: the command did not start. What others put into the folder stays."""
        self._lock.release()
        for path in (self.folder / runfile.NAME, self.raw_dir, self.folder):
            try:
                path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
            except OSError:
                return

    def recover(self) -> bool:
        """Take in what a killed launcher left; False when it still lives. Raises OSError, sqlite3.Error."""
        if not self._lock.take(unless_sure=False):
            return False
        for path in self._sqlite_files():
            self._adopt(self._bucket(path.stem))
        self._close(0, 0)
        return True

    def write_steps(
        self, rank: int, columns: Mapping[str, npt.NDArray[Any]], *, pid: int | None = None
    ) -> bool:
        """Write the measured steps of a rank as a plain table ``steps``; False where that could not be done.

        Floats in seconds (a name that ends in ``_s``, or a phase) are stored as whole nanoseconds,
        ``NAME_ns``. Where several processes share a rank, ``pid`` says which. The table is for other tools: a
        folder that cannot be written has no such table and is a recording all the same.
        """
        try:
            for path in self._sqlite_files():
                bucket = Bucket(path)
                try:
                    if bucket.holds(rank, pid):
                        bucket.write_steps(columns)
                        return True
                finally:
                    bucket.close()
        except (OSError, sqlite3.Error) as error:
            self._warn(f"the steps table of rank {rank} could not be written: {error}")
        return False

    # -- raw files ----------------------------------------------------------------------------------------

    def _take_in(self, *, last: bool) -> None:
        found = raw.find(self.raw_dir)
        newest = {files.pid: files.start_ns for files in found}
        for files in found:
            self._look(files, superseded=newest[files.pid] > files.start_ns)
        self._seat(last=last)
        waiting: dict[str, list[_Member]] = {}
        for member in self._members.values():
            if not member.removed and self._is_due(member, last):
                waiting.setdefault(self._name(member, last), []).append(member)
        for name, members in waiting.items():
            if name:
                self._write(self._bucket(name), members)

    def _look(self, files: raw.RawFiles, *, superseded: bool) -> None:
        """Read on in the files of a process; all is read when nothing came since it was seen gone."""
        member = self._members.get(files.key)
        if member is None:
            facts = Facts(key=files.key, pid=files.pid, start_ns=files.start_ns)
            member = self._members[files.key] = _Member(files=files, facts=facts)
        now = perf_counter_ns()
        alive = not (superseded or member.ended) and is_alive(files.pid)
        was_gone = member.gone_ns > 0
        if alive:
            member.alive_ns = now
        elif not was_gone:
            member.gone_ns = now
        if member.num_rows >= _READ_AHEAD_ROWS:
            return
        before = (member.rows_read, member.notes_read)
        self._read_on(member, live=alive)
        if (member.rows_read, member.notes_read) == before:
            member.all_read = was_gone and not alive
        elif was_gone:
            # It writes though its pid is gone: it lives in a process namespace where it has another.
            member.gone_ns, member.alive_ns = 0, now

    def _read_on(self, member: _Member, *, live: bool) -> None:
        files = member.files
        notes, member.notes_read, bad = raw.read_notes(files.notes, member.notes_read)
        self._bad_notes += bad
        member.facts.learn(notes)
        member.notes += notes
        self._remember_parent(member.facts)
        while True:
            rows, at = raw.read_rows(files.rows, member.rows_read, live=live)
            if at == member.rows_read:
                return
            member.rows_read = at
            member.rows.append(rows)
            member.facts.look_at(rows, raw.last_ns(rows))
            if member.num_rows >= _READ_AHEAD_ROWS:
                return

    def _remember_parent(self, facts: Facts) -> None:
        """Keep the line of processes above a worker that are not observed themselves, while they live."""
        if facts.role != "worker" or facts.ppid in self._parents:
            return
        pid = facts.ppid
        for _ in range(8):
            parent = parent_of(pid)
            if parent <= 1:
                return
            self._parents[pid] = parent
            pid = parent

    def _seat(self, *, last: bool) -> None:
        if not last and all(member.seat for member in self._members.values()):
            return
        seats = assign([member.facts for member in self._members.values()], self._parents)
        for key, member in self._members.items():
            seat = seats[key]
            # A worker whose trainer has not shown work yet waits for it.
            owner = self._members[seat.owner].facts if seat.owner else None
            waits = seat.role == "worker" and (owner is None or not owner.active)
            is_idle = seat.role != "worker" and not member.facts.active
            member.seat = None if (waits or is_idle) and not last else seat

    def _is_due(self, member: _Member, last: bool) -> bool:
        if last or member.gone_ns or member.num_rows >= _ENOUGH_ROWS:
            return bool(last or member.gone_ns or member.rows or member.notes)
        return bool(member.notes or member.rows) and perf_counter_ns() - member.stored_ns >= _LONG_ENOUGH_NS

    # -- files --------------------------------------------------------------------------------------------

    def _name(self, member: _Member, last: bool) -> str:
        """The file a member's rows go to, "" while it is too early to tell."""
        if member.bucket is not None:
            return member.bucket.path.stem
        seat = member.seat
        if seat is None:
            too_much = member.num_rows * ROW.size > _TOO_MUCH_TO_HOLD
            return f"other-{member.facts.pid}" if too_much else ""
        if seat.role == "worker" and seat.owner:
            return self._name(self._members[seat.owner], last)
        if seat.role != "main":
            return f"other-{member.facts.pid}"
        return self._free_name(seat.rank, member)

    def _free_name(self, rank: int, member: _Member) -> str:
        taken = {
            other.bucket.path.stem
            for other in self._members.values()
            if other.bucket is not None and other is not member and other.facts.role == "main"
        }
        name, number = f"rank-{rank}", 1
        while name in taken:
            number += 1
            name = f"rank-{rank}-{number}"
        if member.bucket is None:
            member.bucket = self._bucket(name)
        return name

    def _bucket(self, name: str) -> Bucket:
        if name not in self._buckets:
            self._buckets[name] = Bucket(self.folder / f"{name}.sqlite")
        return self._buckets[name]

    def _sqlite_files(self) -> list[Path]:
        return sorted([*self.folder.glob("rank-*.sqlite"), *self.folder.glob("other-*.sqlite")])

    def _write(self, bucket: Bucket, members: Sequence[_Member]) -> None:
        """One transaction for all that waits for this file; what is committed leaves memory and raw files."""
        with bucket:
            for member in members:
                seat = member.seat or Seat(role="other", rank=0)
                taken = (member.rows_read, member.notes_read)
                process = bucket.put(member.facts, seat.role, seat.rank, member.end_ns, taken)
                if member.rows:
                    bucket.add_rows(process, np.concatenate(member.rows))
                bucket.add_notes(process, member.notes)
        for member in members:
            member.bucket = bucket
            member.rows, member.notes = [], []
            member.rows_in, member.notes_in = member.rows_read, member.notes_read
            member.stored_ns = perf_counter_ns()
            if member.all_read:
                member.files.remove()
                member.removed = True
            else:
                member.punched = punch(member.files.rows, member.punched, member.rows_in)

    def _adopt(self, bucket: Bucket) -> None:
        """Go on where the launcher that wrote this file stopped."""
        for facts, rows_in, notes_in in bucket.processes():
            start_ns = int(facts.key.partition("-")[2])
            files = raw.RawFiles(folder=self.raw_dir, pid=facts.pid, start_ns=start_ns)
            self._members[facts.key] = _Member(
                files=files, facts=facts, bucket=bucket,
                rows_read=rows_in, notes_read=notes_in, rows_in=rows_in, notes_in=notes_in,
                removed=not (files.rows.exists() or files.notes.exists()),
            )  # fmt: skip

    # -- the end ------------------------------------------------------------------------------------------

    def _close(self, root_pid: int, root_end_ns: int) -> None:
        roots = [member for member in self._members.values() if member.facts.pid == root_pid]
        if roots:  # the newest: a command may have replaced itself
            root = max(roots, key=lambda member: member.facts.start_ns)
            root.gone_ns = root.alive_ns = root_end_ns
            root.ended = True
        for step in (self._last_words, self._publish, self._clear):
            try:
                step()
            except (OSError, sqlite3.Error) as error:
                self._warn(f"not all could be stored: {error}")

    def _last_words(self) -> None:
        self._take_in(last=True)
        while any(not member.removed and member.gone_ns for member in self._members.values()):
            before = sum(member.rows_in + member.notes_in for member in self._members.values())
            self._take_in(last=True)
            if sum(member.rows_in + member.notes_in for member in self._members.values()) == before:
                break

    def _publish(self) -> None:
        """Close every file; a process that came to work late gets its rank's name."""
        for open_bucket in self._buckets.values():
            open_bucket.close()
        self._system.close()
        for member in self._members.values():
            seat, bucket = member.seat, member.bucket
            if seat and bucket and seat.role == "main" and bucket.path.stem.startswith("other-"):
                path = self.folder / f"{self._free_name(seat.rank, member)}.sqlite"
                bucket.path.rename(path)
                bucket.path = path
        self._buckets.clear()

    def _clear(self) -> None:
        self._lock.release(remove=True)
        if raw.find(self.raw_dir):
            return
        for path in self.raw_dir.iterdir():  # traces of --profile
            path.rename(self.folder / path.name)
        self.raw_dir.rmdir()

    def _warn(self, text: str) -> None:
        if text not in self.warnings and len(self.warnings) < 20:
            self.warnings.append(text)
