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
from functools import partial
from operator import itemgetter
from pathlib import Path
from time import perf_counter_ns, time
from typing import Any, Final

from hotloop.errors import UsageError
from hotloop.record import raw, runfile
from hotloop.record.intake import Follow, Intake
from hotloop.record.mark import mark
from hotloop.record.samples import Samples, SystemFile

#: With less room than this an observed process cannot reserve its next piece.
_FULL: Final = 512 << 10


class Store:
    """Writes one run's folder. ``warnings`` says in words what could not be stored. ``follow`` gets rows and
    notes as they come.
    """

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
        """Take in the rest, give every file its final name, and say in ``run.json`` how it ended.

        ``outcome`` is what ``launch.command`` says of that.
        """
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
        bad_notes = sum(member.bad_notes for member in self._intake.members)
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
