"""Runs a script under the probe, in a process of its own, and reads the raw files it leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Any, TypeVar

from tests.warm import Warm

from hotloop.record.rows import KIND_NAMES, LONG, ROW

SRC = Path(__file__).resolve().parent.parent / "src"
INJECT = SRC / "hotloop" / "bootstrap" / "inject"
_WARM = Warm(INJECT)


@dataclass(frozen=True)
class Row:
    start: int
    dur: int  # nanoseconds
    value: int
    site: int
    obj: int
    extra: int
    flags: int
    kind: str


@dataclass(frozen=True, kw_only=True)
class Observed:
    """One finished process: its output, and what the probe wrote about every process of the command."""

    returncode: int
    stdout: str
    stderr: str
    rows: list[Row] = field(default_factory=list)  # of the process that wrote most rows
    notes: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # of the same process, by type
    processes: dict[str, tuple[list[Row], dict[str, list[dict[str, Any]]]]] = field(
        default_factory=dict
    )  # by stem

    def of(self, kind: str) -> list[Row]:
        return [row for row in self.rows if row.kind == kind]

    def line(self, row: Row) -> int:
        """The line of the row's call site; 0 for none."""
        return next((note["line"] for note in self.notes.get("site", []) if note["id"] == row.site), 0)

    def with_role(self, role: str) -> list[tuple[list[Row], dict[str, list[dict[str, Any]]]]]:
        return [p for p in self.processes.values() if any(n["role"] == role for n in p[1].get("process", []))]


Ended = TypeVar("Ended", subprocess.CompletedProcess[str], Observed)


def succeeded(done: Ended) -> Ended:
    """The process, if it ended with 0; else what it said."""
    assert done.returncode == 0, done.stderr
    return done


def environment(raw: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    path = os.environ.get("PYTHONPATH", "")
    kept = [part for part in path.split(os.pathsep) if part and Path(part).resolve() != SRC]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(INJECT), *kept]),
        "HOTLOOP_RAW": str(raw),
        "HOTLOOP_SRC": str(SRC),
        "OMP_NUM_THREADS": "1",
        **(extra or {}),
    }


def run_observed(
    script: str,
    *args: str,
    folder: Path,
    env: Mapping[str, str] | None = None,
    observed: bool = True,
    python: Iterable[str] = (),
    warm: bool = True,
) -> Observed:
    """Write ``script`` to ``folder/train.py``, run it there and read its raw files (none if not observed)."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text(dedent(script))
    return run_command(
        [sys.executable, *python, "train.py", *args],
        folder=folder,
        env=env,
        observed=observed,
        warm=warm,
    )


def hotloop(
    *words: object,
    folder: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 240,
    warm: bool = True,
    first: str = "",
) -> subprocess.CompletedProcess[str]:
    """``hotloop WORDS`` in ``folder``, after the statements ``first``; it and its files run as children of a
    warm process.
    """
    arguments, folder = list(map(str, words)), folder or Path.cwd()
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("HOTLOOP_")}
    surroundings |= {"OMP_NUM_THREADS": "1", **(env or {})}
    surroundings.pop("PYTHONPATH", None)
    if warm and _WARM.suits(surroundings):
        return _WARM.run("", arguments, folder=folder, env=surroundings, timeout=timeout, first=first)
    run = "\nimport runpy; runpy.run_module('hotloop', run_name='__main__')"
    return subprocess.run(
        [sys.executable, *(["-c", first + run] if first else ["-m", "hotloop"]), *arguments],
        cwd=folder, env={**surroundings, "PYTHONPATH": str(SRC)},
        capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip


def python(
    *words: object, folder: Path, script: str = "", env: Mapping[str, str] | None = None, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """``python WORDS`` in ``folder``, where ``script`` is train.py, in a process that can import hotloop; a
    plain script and hotloop itself in a child of a warm process.
    """
    if script:
        (folder / "train.py").write_text(script)
    if words[:2] == ("-m", "hotloop"):
        return hotloop(*words[2:], folder=folder, env=env, timeout=timeout)
    arguments, surroundings = list(map(str, words)), {**os.environ, "OMP_NUM_THREADS": "1", **(env or {})}
    surroundings.pop("PYTHONPATH", None)
    if arguments[0].endswith(".py") and _WARM.suits(surroundings):
        return _WARM.run(arguments[0], arguments[1:], folder=folder, env=surroundings, timeout=timeout)
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder, env={**surroundings, "PYTHONPATH": str(SRC)},
        capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip


def run_command(
    command: list[str],
    *,
    folder: Path,
    env: Mapping[str, str] | None = None,
    observed: bool = True,
    timeout: float = 120,
    warm: bool = True,
) -> Observed:
    """Run any command in ``folder`` under the probe; a plain script in a child of a warm process."""
    raw = folder / "raw"
    raw.mkdir(exist_ok=True)
    surroundings = environment(raw, env)
    if not observed:
        surroundings = {k: v for k, v in surroundings.items() if not k.startswith("HOTLOOP_")}
        surroundings["PYTHONPATH"] = (env or {}).get("PYTHONPATH", "")
    if command[:2] == [sys.executable, "train.py"] and warm and _WARM.suits(surroundings):
        done = _WARM.run("train.py", command[2:], folder=folder, env=surroundings, timeout=timeout)
    else:
        done = subprocess.run(
            command, cwd=folder, env=surroundings, capture_output=True, text=True, timeout=timeout
        )
    processes = {
        stem: (read_rows(raw / f"{stem}.rows"), read_notes(raw / f"{stem}.notes"))
        for stem in sorted({path.stem for path in raw.iterdir()})
    }
    rows, notes = max(processes.values(), key=lambda p: len(p[0]), default=([], {}))
    return Observed(
        returncode=done.returncode, stdout=done.stdout, stderr=done.stderr, rows=rows, notes=notes,
        processes=processes,
    )  # fmt: skip


def read_rows(path: Path) -> list[Row]:
    rows: list[Row] = []
    if not path.exists():
        return rows
    data = path.read_bytes()
    for fields in ROW.iter_unpack(data[: len(data) // ROW.size * ROW.size]):
        start, dur, value, site, obj, extra, flags, kind = fields
        if kind == 0:
            break
        scale = 1000 if flags & LONG else 1
        rows.append(Row(start, dur * scale, value, site, obj, extra, flags & ~LONG, KIND_NAMES[kind]))
    return rows


def read_notes(path: Path) -> dict[str, list[dict[str, Any]]]:
    notes: dict[str, list[dict[str, Any]]] = {}
    if path.exists():
        for line in path.read_text().splitlines():
            note = json.loads(line)
            notes.setdefault(note["note"], []).append(note)
    return notes
