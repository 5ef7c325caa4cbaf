"""Raw files with known content, written by the probe's own writer."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotloop.record import rows as r
from hotloop.record.store import Store
from hotloop.record.writer import Writer

#: One training step of a plain loop: kind, duration in ns.
STEP = ((r.FETCH, 80_000), (r.FORWARD, 150_000), (r.BACKWARD, 200_000), (r.OPTIMIZER, 50_000))


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended, as ``launch`` says it."""

    exit_code: int = 0
    pid: int = 0
    start_ns: int = 1_000
    end_ns: int = 5_000_000_000
    start_unix_s: float = 1.7e9
    warnings: tuple[str, ...] = ()


def gone_pid() -> int:
    """The pid of a process that is no more."""
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


def write(
    raw: Path,
    pid: int,
    start_ns: int = 1_000,
    *,
    steps: int = 3,
    rows: Iterable[tuple[int, int, int]] = (),
    notes: Iterable[dict[str, Any]] = (),
    close: bool = True,
    **introduction: Any,
) -> Writer:
    """One process: its ``process`` note, ``steps`` training steps, ``rows`` (kind, start, dur), ``notes``."""
    raw.mkdir(parents=True, exist_ok=True)
    writer = Writer(str(raw), pid, start_ns)
    about = {"schema": 1, "pid": pid, "ppid": 1, "parent_main_pid": None, "role": "main", "rank": 0}
    writer.note("process", **{**about, "start_ns": start_ns, **introduction})
    at = start_ns
    for _ in range(steps):
        for kind, dur in STEP:
            writer.row(kind, at, dur, value=8)
            at += dur + 1_000
    for kind, start, dur in rows:
        writer.row(kind, start, dur)
    for note in notes:
        writer.note(**note)
    if close:
        writer.close()
    return writer


def begun(folder: Path) -> Store:
    """A run folder of a command that goes on."""
    store = Store(folder)
    store.begin(["python", "train.py"], {"cores": 2})
    return store


def finished(folder: Path, *, end_ns: int = Ended.end_ns, steps: int = 5, **written: Any) -> Path:
    """A run folder of one process that ended, with what ``write`` is given."""
    store = begun(folder)
    write(store.raw_dir, gone_pid(), steps=steps, **written)
    store.finish(Ended(end_ns=end_ns))
    return folder


def own_pid() -> int:
    """The pid of a process that lives."""
    return os.getpid()
