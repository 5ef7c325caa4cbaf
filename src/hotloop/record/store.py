"""The launching side of a recording: raw files become SQLite once the run is over.

The raw files are the truth until all of a training process is in its file, which appears whole: a crash at
any point loses nothing. Nothing here raises once the run has begun: a full disk ends in ``warnings`` and the
raw files stay.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from time import perf_counter_ns, time
from typing import Any, Final, Protocol

import numpy.typing as npt
import psutil

from hotloop.errors import UsageError
from hotloop.record import raw, runfile, system, tables
from hotloop.record.owners import Facts, assign, facts_of
from hotloop.record.progress import Progress

#: With less room than this an observed process cannot reserve its next piece.
_FULL: Final = 512 << 10


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


class Store:
    """Writes one run's folder. ``warnings`` says in words what could not be stored."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.raw_dir = folder / "raw"
        self.warnings: list[str] = []
        self._lock = runfile.Lock(self.raw_dir)
        self._progress = Progress(self.raw_dir)
        self._run: dict[str, Any] = {}

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
        try:
            self.raw_dir.mkdir(parents=True, exist_ok=True)
            if not self._lock.take():
                raise UsageError(
                    f"{self.folder} is in use by another run", hint="give another folder with --out"
                )
            if (
                raw.find(self.raw_dir)
                or tables.rank_files(self.folder)
                or (self.folder / runfile.NAME).exists()
            ):
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

    def take_in(self, samples: system.Samples) -> None:
        """Keep ``samples`` of the system, at every tick."""
        try:
            if shutil.disk_usage(self.folder).free < _FULL:
                self._warn(f"the disk of {self.folder} was full for some time: steps are missing")
            system.append(self.raw_dir, samples)
        except OSError as error:
            self._warn(f"not all could be stored: {error}")

    @property
    def progress(self) -> tuple[int, int]:
        """Pid and steps so far of the living process that has trained longest; zeros before any has."""
        return self._progress.look()

    def finish(self, outcome: Ending) -> None:
        """Take in the rest, give every file its final name, and say in ``run.json`` how it ended."""
        self._run["without_torch"] = self._told("without-torch")
        self._run["torch_failed"] = self._told("torch-failed")
        if "patch" in self._run:
            self._run["patch"]["met"] = self._told("patch-met")
        self._run.update(
            start_ns=outcome.start_ns,
            start_unix_s=outcome.start_unix_s,
            exit_code=outcome.exit_code,
            wall_s=(outcome.end_ns - outcome.start_ns) / 1e9,
            complete=True,
        )
        try:
            self._convert(outcome.start_ns, outcome.pid, outcome.end_ns)
        except (OSError, sqlite3.Error) as error:
            self._warn(f"not all could be stored: {error}")
        self._clear()
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

    def recover(self, start_ns: int) -> None:
        """Take in what a killed launcher left, unless it still lives. Raises OSError, sqlite3.Error."""
        if self._lock.take(unless_sure=False):
            try:
                self._convert(start_ns)
            finally:
                self._clear()

    def write_steps(
        self, rank: int, columns: Mapping[str, npt.NDArray[Any]], *, pid: int | None = None
    ) -> bool:
        """Write the measured steps of a rank as a plain table ``steps``; False where that could not be done.

        Floats in seconds (a name that ends in ``_s``, or a phase) are stored as whole nanoseconds,
        ``NAME_ns``. Where several processes share a rank, ``pid`` says which. The table is for other tools: a
        folder that cannot be written has no such table and is a recording all the same.
        """
        try:
            for path in tables.rank_files(self.folder):
                with closing(sqlite3.connect(path)) as db:
                    if tables.holds(db, rank, pid):
                        tables.write_steps(db, columns)
                        return True
        except (OSError, sqlite3.Error) as error:
            self._warn(f"the steps table of rank {rank} could not be written: {error}")
        return False

    def _convert(self, start_ns: int, root_pid: int = 0, root_end_ns: int = 0) -> None:
        """Put every training process that has ended into a file, its workers with it, then drop its raw
        files; ``root_pid`` is the command's own process, which has ended.
        """
        files = {one.key: one for one in raw.find(self.raw_dir)}
        for key in self._stored_keys() & files.keys():  # hotloop was killed before it removed these
            files.pop(key).remove()
        everyone = {key: facts_of(one) for key, one in files.items()}
        roots = [facts for facts in everyone.values() if facts.pid == root_pid]
        root = max(roots, key=lambda facts: facts.start_ns, default=None)  # it may have replaced itself
        if root is not None:
            root.saw(root_end_ns)
        seats = assign(list(everyone.values()))
        groups: dict[str, list[Facts]] = {}
        for key, facts in sorted(everyone.items(), key=lambda item: item[1].role == "worker"):
            groups.setdefault(seats[key].owner or key, []).append(facts)
        living = [key for key in groups if everyone[key] is not root and _lives(everyone[key].pid)]
        damaged = 0
        for key, members in groups.items():
            if key in living:
                continue
            stem = f"rank-{seats[key].rank}" if seats[key].role == "main" else f"other-{members[0].pid}"
            whole = [(facts, seats[facts.key], files[facts.key]) for facts in members]
            damaged += tables.write_rank(self._free(stem), whole)
            for facts in members:
                files[facts.key].remove()
        if damaged:
            self._warn(f"{damaged} notes of the run could not be read and are left out")
        if still_there := sum(seats[key].role == "main" for key in living):
            words = "a process that trains was" if still_there == 1 else f"{still_there} processes were"
            self._warn(f"{words} still running when the command ended; what came later is missing")
        machine, processes = system.read(self.raw_dir, start_ns)
        if machine:
            tables.write_system(self.folder / "system.sqlite", machine, processes)
            (self.raw_dir / system.NAME).unlink()

    def _stored_keys(self) -> set[str]:
        keys: set[str] = set()
        for path in tables.rank_files(self.folder):
            with closing(sqlite3.connect(path)) as db:
                keys |= {key for (key,) in db.execute("SELECT key FROM processes")}
        return keys

    def _free(self, stem: str) -> Path:
        path, number = self.folder / f"{stem}.sqlite", 1
        while path.exists():
            number += 1
            path = self.folder / f"{stem}-{number}.sqlite"
        return path

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
        try:
            self._lock.release(remove=True)
            if raw.find(self.raw_dir):
                return
            for path in self.raw_dir.iterdir():  # traces of --profile
                path.rename(self.folder / path.name)
            self.raw_dir.rmdir()
        except OSError as error:
            self._warn(f"not all could be stored: {error}")

    def _warn(self, text: str) -> None:
        if text not in self.warnings and len(self.warnings) < 20:
            self.warnings.append(text)


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.Error:
        return False
