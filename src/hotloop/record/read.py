"""A run folder, or one of its files, as a Recording; also while the run goes on or after its launcher was
killed. Nothing is written.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any, Final

from hotloop.errors import RecordingError
from hotloop.record import nodes, raw, runfile
from hotloop.record.assembly import assembled
from hotloop.record.bucket import files_of, read_bucket
from hotloop.record.raw import Observed
from hotloop.record.recording import Recording
from hotloop.record.samples import read_samples
from hotloop.record.spill import IN_MEMORY

#: So many rows of a recording lie in memory (100 MB).
_ROOM: Final = 4 * IN_MEMORY
_WAY_OUT: Final = "give the folder that `hotloop run` printed, or one of its rank-N.sqlite files"


def open_recording(path: Path | str, room: int = _ROOM) -> Recording:
    """The recording in a run folder or in one of its SQLite files; raises RecordingError. Of a complete run
    with more than ``room`` rows the rest is read when asked for.
    """
    path = Path(path)
    alone = os.path.isfile(path)  # noqa: PTH113 - of a name that is too long as well
    folder = path.parent if alone else path
    if not os.path.isdir(folder):  # noqa: PTH112
        raise RecordingError(f"{path} does not exist, or is no folder", hint=_WAY_OUT)
    run, warnings = runfile.read(folder)
    if run.get("parts") and not alone:
        return _merged(folder, run, warnings, room)
    waiting = set() if alone else raw.keys(folder / "raw")
    observed: list[Observed] = []
    damaged: list[RecordingError] = []
    for file in [path] if alone else files_of(folder):
        known = len(observed)
        try:
            observed += read_bucket(file, room if run.get("complete") and not waiting else inf)
            room -= sum(len(rows) for one in observed[known:] for rows in one.rows)
        except RecordingError as error:
            if not alone and not os.path.lexists(file):  # the run ended, and has renamed it
                return open_recording(path, room)
            damaged.append(error)
    if not alone:
        observed = raw.with_what_is_left(observed, folder / "raw", warnings)
        if waiting - raw.keys(folder / "raw"):  # a process ended, and its rows went where was read before
            return open_recording(path)
    if damaged and not observed:
        raise damaged[0]
    if not observed and (alone or not run):
        found = (*folder.glob(f"*/{runfile.NAME}"), *folder.glob(f"trials/*/{runfile.NAME}"))
        inside = sorted(run.parent for run in found)
        hint = f"it holds runs, give one of them: {' '.join(map(str, inside[:8]))}" if inside else _WAY_OUT
        if len(inside) > 1:
            hint += f"; nodes of one job become one run with: hotloop merge {path}/* --out DIR"
        raise RecordingError(f"{path} holds no hotloop recording", hint=hint)
    try:
        sampled = read_samples(folder / "system.sqlite", run.get("start_ns") or 0)
    except RecordingError as error:
        sampled = {}, {}
        damaged.append(error)
    warnings += [error.message for error in damaged]
    return assembled(folder if run or not alone else None, run, observed, sampled, warnings)


def _merged(folder: Path, run: Mapping[str, Any], warnings: list[str], room: int) -> Recording:
    """A run that ``hotloop merge`` made; a part that cannot be read is left out."""
    read, damaged = [], []
    for part, name in zip(run["parts"], nodes.part_names(run["parts"]), strict=True):
        try:
            if runfile.read(folder / name)[0].get("parts"):  # it may hold itself
                raise RecordingError(f"{folder / name} is a merged run and no part", hint=_WAY_OUT)
            read.append((part, open_recording(folder / name, room // len(run["parts"]))))
        except RecordingError as error:
            damaged.append(error)
    if not read:
        raise damaged[0]
    warnings += [error.message for error in damaged]
    return nodes.merged(assembled(folder, run, (), ({}, {}), warnings), read)
