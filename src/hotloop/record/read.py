"""A run folder, or one of its files, as a Recording; also what a killed launcher left, also read-only."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from hotloop.errors import RecordingError
from hotloop.record import raw, runfile
from hotloop.record.bucket import files_of, read_processes
from hotloop.record.owners import Facts, Seat, assign
from hotloop.record.recording import ROW_DTYPE, InForce, Note, Process, Recording
from hotloop.record.rows import ITER
from hotloop.record.schema import is_empty, unpack
from hotloop.record.spill import empty_rows, in_turn, release
from hotloop.record.store import Store

#: Rows are sorted in runs of this many.
_SORT_ROWS: Final = 1 << 16
_NEVER: Final = (1 << 64) - 1
_T = TypeVar("_T")
_WAY_OUT: Final = "give the folder that `hotloop run` printed, or one of its rank-N.sqlite files"
_DAMAGED: Final = (sqlite3.DatabaseError, zlib.error, ValueError, KeyError, TypeError)


@dataclass(kw_only=True)
class _Part:
    """What is known of one process, from SQLite and from what its raw files hold beyond that."""

    facts: Facts
    end_ns: int | None = None
    rows_taken: int = 0
    notes_taken: int = 0
    rows: list[npt.NDArray[Any]] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)


def open_recording(path: Path | str) -> Recording:
    """The recording in a run folder or in one of its SQLite files; raises RecordingError."""
    path = Path(path)
    if path.is_file():
        return _from_file(path)
    if not path.is_dir():
        raise RecordingError(f"{path} does not exist", hint=_WAY_OUT)
    run = runfile.read(path)
    if not run and not files_of(path) and not raw.find(path / "raw"):
        raise RecordingError(f"{path} holds no hotloop recording", hint=_WAY_OUT)
    warnings: list[str] = list(run.get("warnings", ()))
    _recover(path, run)
    parts = _load_folder(path, warnings)
    columns, per_process = _system(path / "system.sqlite", int(run.get("start_ns") or 0), warnings)
    return _recording(path, run, parts, columns, per_process, warnings)


def _from_file(path: Path) -> Recording:
    parts = {part.facts.key: part for part in _from_sqlite(path, _read_rank)}
    if not parts:
        raise RecordingError(f"{path} holds no hotloop recording", hint=_WAY_OUT)
    run = runfile.read(path.parent) if path.parent.joinpath(runfile.NAME).exists() else {}
    warnings = list(run.get("warnings", ()))
    columns, per_process = _system(path.parent / "system.sqlite", int(run.get("start_ns") or 0), warnings)
    return _recording(path.parent if run else None, run, parts, columns, per_process, warnings)


def _recover(folder: Path, run: Mapping[str, Any]) -> None:
    """Take in what is left where that is safe: the launcher is dead, and its pids mean something here."""
    if not raw.find(folder / "raw") or run.get("system_id", "") != runfile.system_id():
        return
    try:
        Store(folder).recover()
    except (OSError, sqlite3.Error, ValueError, KeyError):
        # A read-only folder, a full disk, a damaged file: what is there is read in memory instead.
        return


def _load_folder(folder: Path, warnings: list[str]) -> dict[str, _Part]:
    for _ in range(8):
        before = raw.find(folder / "raw")
        parts = _load_sqlite(folder, warnings)
        bad = sum(_add_raw(parts, files) for files in before)
        # A live launcher may have moved a file into SQLite between the two looks.
        if raw.find(folder / "raw")[: len(before)] == before:
            break
    if bad:
        warnings.append(f"{bad} notes could not be read and are left out")
    return parts


def _load_sqlite(folder: Path, warnings: list[str]) -> dict[str, _Part]:
    """The parts in all files; a damaged file among others is a warning, alone it is an error."""
    parts: dict[str, _Part] = {}
    damaged: list[RecordingError] = []
    for path in files_of(folder):
        try:
            parts |= {part.facts.key: part for part in _from_sqlite(path, _read_rank)}
        except RecordingError as error:
            damaged.append(error)
    if damaged and not parts:
        raise damaged[0]
    warnings += [error.message for error in damaged]
    return parts


def _add_raw(parts: dict[str, _Part], files: raw.RawFiles) -> int:
    """Add what the raw files hold beyond what is in SQLite; returns how many notes were damaged."""
    part = parts.get(files.key)
    if part is None:
        part = parts[files.key] = _Part(
            facts=Facts(key=files.key, pid=files.pid, start_ns=files.start_ns, last_ns=files.start_ns)
        )
    notes, _, bad = raw.read_notes(files.notes, part.notes_taken)
    part.notes += notes
    part.facts.learn(notes)
    at = part.rows_taken
    while True:
        rows, behind = raw.read_rows(files.rows, at, live=False)
        if behind == at:
            return bad
        at = behind
        part.rows.append(rows)
        part.facts.look_at(rows, raw.last_ns(rows))


def _from_sqlite(path: Path, read: Callable[[sqlite3.Connection, Path], _T]) -> _T:
    """Read a file without writing beside it; raises RecordingError for a damaged or foreign one."""
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=5.0)) as db:
            return read(db, path)
    except sqlite3.OperationalError as error:
        if not _journal(path).exists():
            raise _unreadable(path, error) from error
    except _DAMAGED as error:
        raise _unreadable(path, error) from error
    return _from_copy(path, read)


def _journal(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _from_copy(path: Path, read: Callable[[sqlite3.Connection, Path], _T]) -> _T:
    """A killed launcher leaves a journal and SQLite must write beside it: where it cannot, a copy is read."""
    with tempfile.TemporaryDirectory(prefix="hotloop-") as scratch:
        copy = Path(scratch) / path.name
        try:
            shutil.copyfile(path, copy)
            shutil.copyfile(_journal(path), _journal(copy))
            with closing(sqlite3.connect(copy)) as db:
                return read(db, path)
        except (OSError, *_DAMAGED) as error:
            raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> RecordingError:
    return RecordingError(f"{path} cannot be read as a recording: {error}", hint=_WAY_OUT)


def _check(db: sqlite3.Connection, path: Path) -> dict[str, str]:
    meta = dict(db.execute("SELECT key, value FROM meta").fetchall())
    runfile.check_schema(meta.get("schema"), path)
    return meta


def _read_rank(db: sqlite3.Connection, path: Path) -> list[_Part]:
    if is_empty(db):
        return []
    _check(db, path)
    db.execute("BEGIN")  # one view of the file, while its launcher may go on writing
    ends = dict(db.execute("SELECT key, end_ns FROM processes"))
    numbers = dict(db.execute("SELECT id, key FROM processes"))
    parts = {
        facts.key: _Part(facts=facts, end_ns=ends[facts.key], rows_taken=rows, notes_taken=notes)
        for facts, rows, notes in read_processes(db)
    }
    for process, num_rows in db.execute(
        "SELECT process, sum(num_rows) FROM chunks GROUP BY process"
    ).fetchall():
        rows, at = empty_rows(num_rows, path.parent), 0  # once, not as pieces beside it
        chunks = "SELECT num_rows, data FROM chunks WHERE process = ? ORDER BY seq"
        for length, data in db.execute(chunks, (process,)):
            rows[at : at + length] = unpack(data)
            at += length
            if at % _SORT_ROWS < length:
                release(rows)
        parts[numbers[process]].rows.append(rows)
    for process, text in db.execute("SELECT process, json FROM notes ORDER BY rowid"):
        note = raw.parse_note(text)
        if note is not None:
            parts[numbers[process]].notes.append(note)
    return list(parts.values())


_Columns = dict[str, npt.NDArray[Any]]


def _system(path: Path, start_ns: int, warnings: list[str]) -> tuple[_Columns, dict[int, _Columns]]:
    """The samples; a run without them still has its steps, so a damaged file is a warning."""
    if not path.exists():
        return {}, {}

    def read(db: sqlite3.Connection, path: Path) -> tuple[_Columns, dict[int, _Columns]]:
        if is_empty(db):
            return {}, {}
        origin = int(_check(db, path).get("start_ns", 0))
        shift = (origin - start_ns) / 1e9 if start_ns else 0.0
        machine = _table(db, "SELECT * FROM machine ORDER BY t_s", shift)
        everyone = _table(db, "SELECT * FROM process ORDER BY t_s", shift)
        pids = everyone.pop("pid", np.zeros(0))
        return machine, {
            int(pid): {name: values[pids == pid] for name, values in everyone.items()}
            for pid in np.unique(pids)
        }

    try:
        return _from_sqlite(path, read)
    except RecordingError as error:
        warnings.append(error.message)
        return {}, {}


def _table(db: sqlite3.Connection, query: str, shift_s: float) -> _Columns:
    cursor = db.execute(query)
    names = [column[0] for column in cursor.description]
    rows = cursor.fetchall()
    table = np.array(rows, dtype=np.float64).reshape(len(rows), len(names))
    columns = {name: table[:, number] for number, name in enumerate(names)}
    columns["t_s"] = columns["t_s"] + shift_s
    return columns


def _recording(
    folder: Path | None,
    run: Mapping[str, Any],
    parts: Mapping[str, _Part],
    columns: _Columns,
    per_process: dict[int, _Columns],
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
    last_ns = max((part.end_ns or part.facts.last_ns for part in parts.values()), default=start_ns)
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
        system=columns,
        process_system=per_process,
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
        end_ns=max(part.end_ns or 0, facts.last_ns, facts.start_ns),
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


def _sorted(pieces: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Rows by start; of two that start together the later written is the outer one and comes first."""
    if not pieces:
        return np.zeros(0, ROW_DTYPE)
    rows = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
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
