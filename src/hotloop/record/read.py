"""A run folder, or one of its files, as a Recording; also what a killed launcher left, also read-only."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from hotloop.errors import RecordingError
from hotloop.record import raw, runfile, system
from hotloop.record.owners import Facts, Seat, assign, facts_of
from hotloop.record.recording import InForce, Note, Process, Recording
from hotloop.record.rows import ITER, ROW
from hotloop.record.spill import empty_rows, in_turn, release
from hotloop.record.store import Store
from hotloop.record.system import Columns
from hotloop.record.tables import rank_files, unpack

#: Rows are sorted in runs of this many.
_SORT_ROWS: Final = 1 << 16
_NEVER: Final = (1 << 64) - 1
_T = TypeVar("_T")
_WAY_OUT: Final = "give the folder that `hotloop run` printed, or one of its rank-N.sqlite files"
_DAMAGED: Final = (sqlite3.DatabaseError, zlib.error, ValueError, KeyError, TypeError)


@dataclass(kw_only=True)
class _Part:
    """What is known of one process, from SQLite or from its raw files."""

    facts: Facts
    rows: npt.NDArray[Any]
    notes: list[Note] = field(default_factory=list)


def open_recording(path: Path | str) -> Recording:
    """The recording in a run folder or in one of its SQLite files; raises RecordingError."""
    path = Path(path)
    if path.is_file():
        return _from_file(path)
    if not path.is_dir():
        raise RecordingError(f"{path} does not exist", hint=_WAY_OUT)
    run = runfile.read(path)
    if not run and not rank_files(path) and not raw.find(path / "raw"):
        raise RecordingError(f"{path} holds no hotloop recording", hint=_WAY_OUT)
    warnings: list[str] = list(run.get("warnings", ()))
    _recover(path, run)
    parts = _raw_parts(path, warnings)  # first: what a launcher takes in meanwhile is in SQLite then
    parts |= _stored_parts(path, warnings)
    columns = _system(path, int(run.get("start_ns") or 0), warnings)
    return _recording(path, run, parts, columns, warnings)


def _from_file(path: Path) -> Recording:
    parts = {part.facts.key: part for part in _from_sqlite(path, _read_rank)}
    if not parts:
        raise RecordingError(f"{path} holds no hotloop recording", hint=_WAY_OUT)
    run = runfile.read(path.parent) if path.parent.joinpath(runfile.NAME).exists() else {}
    warnings = list(run.get("warnings", ()))
    columns = _system(path.parent, int(run.get("start_ns") or 0), warnings)
    return _recording(path.parent if run else None, run, parts, columns, warnings)


def _recover(folder: Path, run: Mapping[str, Any]) -> None:
    """Take in what is left where that is safe: the launcher is dead, and its pids mean something here."""
    if not raw.find(folder / "raw") or run.get("system_id", "") != runfile.system_id():
        return
    try:
        Store(folder).recover(int(run.get("start_ns") or 0))
    except (OSError, sqlite3.Error, ValueError, KeyError):
        # A read-only folder, a full disk, a damaged file: what is there is read in memory instead.
        return


def _stored_parts(folder: Path, warnings: list[str]) -> dict[str, _Part]:
    """The parts in all files; a damaged file among others is a warning, alone it is an error."""
    parts: dict[str, _Part] = {}
    damaged: list[RecordingError] = []
    for path in rank_files(folder):
        try:
            parts |= {part.facts.key: part for part in _from_sqlite(path, _read_rank)}
        except RecordingError as error:
            damaged.append(error)
    if damaged and not parts:
        raise damaged[0]
    warnings += [error.message for error in damaged]
    return parts


def _raw_parts(folder: Path, warnings: list[str]) -> dict[str, _Part]:
    """What a run that goes on, or that nothing could be taken in of, holds in its raw files."""
    parts, damaged = {}, 0
    for files in raw.find(folder / "raw"):
        size = files.rows.stat().st_size if files.rows.exists() else 0
        rows, at = empty_rows(size // ROW.size, folder), 0
        for piece in raw.all_rows(files.rows):
            piece = piece[: len(rows) - at]  # it may go on meanwhile
            rows[at : at + len(piece)] = piece
            at += len(piece)
            release(rows)
        notes, bad = raw.read_notes(files.notes)
        damaged += bad
        parts[files.key] = _Part(facts=facts_of(files), rows=rows[:at], notes=notes)
    if damaged:
        warnings.append(f"{damaged} notes could not be read and are left out")
    return parts


def _from_sqlite(path: Path, read: Callable[[sqlite3.Connection, Path], _T]) -> _T:
    """Read a file without writing beside it; raises RecordingError for a damaged or foreign one."""
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=5.0)) as db:
            return read(db, path)
    except _DAMAGED as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> RecordingError:
    return RecordingError(f"{path} cannot be read as a recording: {error}", hint=_WAY_OUT)


def _check(db: sqlite3.Connection, path: Path) -> dict[str, str]:
    meta = dict(db.execute("SELECT key, value FROM meta").fetchall())
    runfile.check_schema(meta.get("schema"), path)
    return meta


def _read_rank(db: sqlite3.Connection, path: Path) -> list[_Part]:
    _check(db, path)
    parts = {}
    for number, key, pid, ppid, start_ns, end_ns, active in db.execute(
        "SELECT id, key, pid, ppid, start_ns, end_ns, active FROM processes ORDER BY id"
    ).fetchall():
        facts = Facts(key=key, pid=pid, ppid=ppid, start_ns=start_ns, last_ns=end_ns, active=bool(active))
        of_it = " WHERE process = ? ORDER BY "
        ((num_rows,),) = db.execute(
            "SELECT coalesce(sum(num_rows), 0) FROM chunks WHERE process = ?", (number,)
        )
        rows, at = empty_rows(num_rows, path.parent), 0  # once, not as pieces beside it
        for length, data in db.execute(f"SELECT num_rows, data FROM chunks{of_it} seq", (number,)):
            rows[at : at + length] = unpack(data)
            at += length
            if at % _SORT_ROWS < length:
                release(rows)
        texts = db.execute(f"SELECT json FROM notes{of_it} rowid", (number,))
        notes = [note for (text,) in texts if (note := raw.parse_note(text)) is not None]
        facts.learn(notes)
        parts[key] = _Part(facts=facts, rows=rows, notes=notes)
    return list(parts.values())


def _system(folder: Path, start_ns: int, warnings: list[str]) -> tuple[Columns, Columns]:
    """The samples; a run without them still has its steps, so a damaged file is a warning."""
    path = folder / "system.sqlite"
    if not path.exists():
        return system.read(folder / "raw", start_ns)

    def read(db: sqlite3.Connection, path: Path) -> tuple[Columns, Columns]:
        _check(db, path)
        return _table(db, "machine"), _table(db, "process")

    try:
        return _from_sqlite(path, read)
    except RecordingError as error:
        warnings.append(error.message)
        return {}, {}


def _table(db: sqlite3.Connection, name: str) -> Columns:
    cursor = db.execute(f"SELECT * FROM {name} ORDER BY t_s")
    names = [column[0] for column in cursor.description]
    rows = cursor.fetchall()
    table = np.array(rows, dtype=np.float64).reshape(len(rows), len(names))
    return {name: table[:, number] for number, name in enumerate(names)}


def _recording(
    folder: Path | None,
    run: Mapping[str, Any],
    parts: Mapping[str, _Part],
    columns: tuple[Columns, Columns],
    warnings: list[str],
) -> Recording:
    seats = assign([part.facts for part in parts.values()])
    workers: dict[str, list[Process]] = {}
    for key, seat in seats.items():
        if seat.role == "worker" and seat.owner:
            workers.setdefault(seat.owner, []).append(_process(parts[key], seat, ()))
    lost = sum(1 for seat in seats.values() if seat.role == "worker" and not seat.owner)
    if lost:
        warnings.append(f"{lost} loader workers could not be matched to a training process and are left out")
    ranks = [
        _process(parts[key], seat, workers.get(key, ())) for key, seat in seats.items() if seat.role == "main"
    ]
    ranks.sort(key=lambda process: (process.rank, process.start_ns))
    start_ns = int(run.get("start_ns") or min((part.facts.start_ns for part in parts.values()), default=0))
    last_ns = max((part.facts.last_ns for part in parts.values()), default=start_ns)
    wall_s = run.get("wall_s")
    return Recording(
        folder=folder,
        command=tuple(str(word) for word in run.get("command", ())),
        exit_code=run.get("exit_code"),
        wall_s=float(wall_s) if wall_s is not None else max(0, last_ns - start_ns) / 1e9,
        start_ns=start_ns,
        start_unix_s=float(run.get("start_unix_s") or 0.0),
        ranks=tuple(ranks),
        machine=dict(run.get("machine") or {}),
        system=columns[0],
        process_system=system.by_pid(columns[1]),
        warnings=tuple(dict.fromkeys(warnings)),
        complete=bool(run.get("complete", False)),
        without_torch=tuple(map(str, run.get("without_torch") or ())),
        torch_failed=tuple(map(str, run.get("torch_failed") or ())),
        cwd=str(run.get("cwd") or ""),
        patch=_in_force(run.get("patch")),
    )


def _in_force(patch: object) -> InForce | None:
    """What ``run.json`` says of a patch; of a run whose launcher was killed nobody knows what it met."""
    if not isinstance(patch, Mapping):
        return None
    files = tuple(map(str, patch.get("files", ())))
    return InForce(files=files, met=tuple(map(str, patch.get("met", files))))


def _process(part: _Part, seat: Seat, workers: list[Process] | tuple[()]) -> Process:
    notes: dict[str, list[Note]] = {}
    for note in part.notes:
        notes.setdefault(note["note"], []).append(note)
    facts = part.facts
    rows = _sorted(part.rows)
    if iterators := _iterators(notes.get("iterator", []), rows):
        notes["iterator"] = iterators
    if introduced := notes.get("process"):
        joined = {name: introduced[-1].get(name) for name in _JOINED}
        notes["process"] = [{**introduced[0], **joined}]
    return Process(
        pid=facts.pid,
        ppid=facts.ppid,
        role=seat.role,
        rank=seat.rank,
        start_ns=facts.start_ns,
        end_ns=max(facts.last_ns, facts.start_ns),
        rows=rows,
        notes=notes,
        workers=tuple(sorted(workers, key=lambda worker: worker.start_ns)),
    )


#: What a process may come to know after its first note: it is written again then.
_JOINED: Final = ("rank", "local_rank", "world_size")

#: What is known of an iterator whose note, or that of the one before it, was lost.
_ALONE: Note = {"note": "iterator", "workers": []}


def _iterators(notes: list[Note], rows: npt.NDArray[Any]) -> list[Note]:
    """A note for every iterator: of one like the one before it, of its loader, there is only the row."""
    noted = {note.get("id") for note in notes}
    rest: list[Note] = []
    for piece in in_turn(rows):
        made = piece[
            (piece["kind"] == ITER) & ~np.isin(piece["obj"], [one for one in noted if isinstance(one, int)])
        ]
        stops = made["start"].astype(np.int64) + raw.durations_ns(made)
        columns = (stops, made["obj"], made["value"], made["site"])
        for t, number, loader, site in zip(*(column.tolist() for column in columns), strict=True):
            rest.append({"t": t, "id": number, "loader": loader, "site": site})
    if not rest:
        return notes
    latest: dict[Any, Note] = {}
    found: list[Note] = []
    for note in sorted([*notes, *rest], key=lambda note: note.get("t") or 0):
        known = latest.get(note.get("loader"), _ALONE)
        latest[note.get("loader")] = whole = note if "note" in note else {**known, **note}
        found.append(whole)
    return found


def _sorted(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Rows by start; of two that start together the later written is the outer one and comes first."""
    if not len(rows):
        return rows
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
