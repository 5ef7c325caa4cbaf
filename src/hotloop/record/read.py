"""A run folder, or one of its files, as a Recording; also while the run goes on or after its launcher was
killed. Nothing is written.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from hotloop.errors import RecordingError
from hotloop.record import nodes, raw, runfile
from hotloop.record.bucket import files_of, read_bucket
from hotloop.record.raw import Observed, Seat, assign
from hotloop.record.recording import (
    IN_MEMORY,
    ROW_DTYPE,
    InForce,
    Later,
    Note,
    Process,
    Recording,
    durations_ns,
    empty_rows,
    in_turn,
    release,
)
from hotloop.record.rows import ITER
from hotloop.record.samples import Columns, read_samples

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


# What was found, put together


#: Rows are sorted in runs of this many.
_SORT_ROWS: Final = 1 << 16
_NEVER: Final = (1 << 64) - 1


def assembled(
    folder: Path | None,
    run: Mapping[str, Any],
    observed: Sequence[Observed],
    sampled: tuple[Columns, dict[int, Columns]],
    warnings: Sequence[str],
) -> Recording:
    """The recording of a run (``runfile``) that left these processes and samples."""
    warnings = list(warnings)
    if bad := sum(one.bad_notes for one in observed):
        warnings.append(f"{bad} notes could not be read, or not all of them")
    seats = assign(one.facts for one in observed)
    if lost := sum(seat.role == "worker" and seat.owner is None for seat in seats.values()):
        warnings.append(f"{lost} loader workers could not be matched to a training process and are left out")
    ranks: list[Process] = []
    workers: dict[str, list[Process]] = {}
    for one in sorted(observed, key=lambda one: (one.facts.role != "worker", one.facts.start_ns)):
        seat = seats[one.facts.key]
        if seat.role == "main" or seat.owner:
            mine = workers.setdefault(seat.owner or one.facts.key, [])
            process = _process(one, seat, mine if seat.role == "main" else (), folder)
            (ranks if seat.role == "main" else mine).append(process)
    by_pid = {process.pid: process for process in ranks}
    ranks = [_configured(process, by_pid) for process in ranks]
    start_ns = run.get("start_ns") or min((one.facts.start_ns for one in observed), default=0)
    last_ns = max((one.end_ns or one.facts.last_ns for one in observed), default=start_ns)
    wall_s, patch = run.get("wall_s"), run.get("patch")
    # Of a run whose launcher was killed nobody knows what of a patch it met.
    files = tuple((patch or {}).get("files") or ())
    met = (patch or {}).get("met")
    return Recording(
        folder=folder,
        command=tuple(run.get("command") or ()),
        exit_code=run.get("exit_code"),
        wall_s=float(wall_s) if wall_s is not None else max(0, last_ns - start_ns) / 1e9,
        start_ns=start_ns,
        start_unix_s=float(run.get("start_unix_s") or 0.0),
        ranks=tuple(sorted(ranks, key=lambda process: (process.rank, process.start_ns))),
        machine=run.get("machine") or {},
        system=sampled[0],
        process_system=sampled[1],
        warnings=tuple(dict.fromkeys(warnings)),
        complete=bool(run.get("complete")),
        without_torch=tuple(run.get("without_torch") or ()),
        torch_failed=tuple(run.get("torch_failed") or ()),
        cwd=run.get("cwd") or "",
        mark=run.get("mark") or "",
        patch=InForce(files=files, met=files if met is None else tuple(met)) if patch is not None else None,
    )


def _process(one: Observed, seat: Seat, workers: Sequence[Process], folder: Path | None) -> Process:
    notes: dict[str, list[Note]] = {}
    for note in one.notes:
        notes.setdefault(note["note"], []).append(note)
    facts = one.facts
    rows = _sorted(one.rows, folder)
    if iterators := _iterators(notes.get("iterator", []), rows):
        notes["iterator"] = iterators
    if introduced := notes.get("process"):  # it is written again when a process joins a group
        joined = {name: introduced[-1].get(name) for name in ("rank", "local_rank", "world_size")}
        notes["process"] = [{**introduced[0], **joined}]
    return Process(
        pid=facts.pid,
        ppid=facts.ppid,
        role=seat.role,
        rank=seat.rank,
        start_ns=facts.start_ns,
        end_ns=max(one.end_ns or 0, facts.last_ns, facts.start_ns),
        rows=cast(Any, rows if one.later is None else _later(one.later, folder)),
        notes=notes,
        workers=tuple(workers),
        cuts=(0,) if one.tail else (),
    )


def _configured(process: Process, ranks: Mapping[int, Process]) -> Process:
    """A process that multiprocessing started trains with what the one that started it had read."""
    starter = ranks.get(process.first("process").get("parent_main_pid") or 0)
    own = process.notes.get("config", [])
    known = {(note.get("source"), note.get("key")) for note in own}
    theirs = starter.notes.get("config", ()) if starter is not None else ()
    more = [note for note in theirs if (note.get("source"), note.get("key")) not in known]
    return process.moved(0, notes={**process.notes, "config": [*more, *own]}) if more else process


def _iterators(notes: list[Note], rows: npt.NDArray[Any]) -> list[Note]:
    """A note for every iterator: of one like the one before it, of its loader, there is only the row."""
    noted = [note["id"] for note in notes]
    rest: list[Note] = []
    for piece in in_turn(rows):
        made = piece[(piece["kind"] == ITER) & ~np.isin(piece["obj"], noted)]
        stops = made["start"].astype(np.int64) + durations_ns(made)
        columns = (stops, made["obj"], made["value"], made["site"])
        for t, number, loader, site in zip(*(column.tolist() for column in columns), strict=True):
            rest.append({"t": t, "id": number, "loader": loader, "site": site})
    if not rest:
        return notes
    latest: dict[int, Note] = {}
    found: list[Note] = []
    for note in sorted([*notes, *rest], key=lambda note: note.get("t") or 0):
        known = latest.get(note["loader"], {"note": "iterator", "workers": []})
        latest[note["loader"]] = whole = note if "note" in note else {**known, **note}
        found.append(whole)
    return found


def _later(written: Later, folder: Path | None) -> Later:
    return replace(written, read=lambda index: _sorted([written.read(index)], folder))


def _sorted(pieces: list[npt.NDArray[Any]], folder: Path | None) -> npt.NDArray[Any]:
    """Rows by start; of two that start together the later written is the outer one and comes first."""
    num_rows = sum(map(len, pieces))
    if not num_rows:
        return np.zeros(0, ROW_DTYPE)
    rows = pieces[0] if len(pieces) == 1 else np.concatenate(pieces, out=empty_rows(num_rows, folder))
    starts = rows["start"]
    blocks = range(0, len(rows), _SORT_ROWS)
    lowest = []
    for at in blocks:
        lowest.append(int(starts[at : at + _SORT_ROWS].min()))
        release(rows)
    after = [*np.minimum.accumulate(lowest[::-1])[::-1][1:].tolist(), _NEVER]
    done = 0  # rows before this one are where they belong
    for at, least in zip(blocks, after, strict=True):
        # A row is written when it closes, so nearly all are in place: an outer one is a little late.
        end = at + _SORT_ROWS if at - done < _SORT_ROWS else len(rows)
        waiting = np.concatenate([rows[at:end][::-1], rows[done:at]])
        waiting = waiting[np.argsort(waiting["start"], kind="stable")]
        rows[done : done + len(waiting)] = waiting
        release(rows)
        done += int(np.searchsorted(waiting["start"], np.uint64(least))) if end < len(rows) else len(waiting)
        if done == len(rows):
            break
    return rows
