"""Raw files as the probe leaves them: found, read from an offset, never trusted to be whole."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hotloop.record import rows as r
from hotloop.record.fields import parse_note
from hotloop.record.recording import ROW_DTYPE, Later, Note, last_ns
from hotloop.record.rows import KIND_NAMES, ROW

#: Rows that only a process doing training's work leaves. A launcher's agent imports torch, logs and collects
#: garbage.
_WORK: Final = np.array(
    [
        r.FETCH, r.ITER, r.FORWARD, r.BACKWARD, r.OPTIMIZER, r.ZERO_GRAD, r.CLIP, r.SCALER, r.TRANSFER,
        r.COLLECTIVE, r.SAVE, r.MAKE, r.COMPILE, r.LOSS,
    ],
    np.uint8,
)  # fmt: skip


@dataclass(kw_only=True)
class Facts:
    """What is known of one observed process; grows while its notes and rows come in."""

    key: str  # of its files, unique within a run
    pid: int
    start_ns: int
    ppid: int = 0
    role: str = "main"
    rank: int | None = None
    parent_main_pid: int | None = None
    worker_pids: set[int] = field(default_factory=set)
    active: bool = False  # it left a row of training's work
    last_ns: int = 0  # it was alive at this time
    backwards: int = 0
    updates: dict[int, int] = field(default_factory=dict)  # optimizer -> steps

    @property
    def steps(self) -> int:
        """Updates so far of the optimizer that made most, without any the backwards."""
        return max(self.updates.values(), default=self.backwards)

    def learn(self, notes: Iterable[Note]) -> None:
        """Take in what its notes say."""
        for note in notes:
            if note["note"] == "process":
                self.ppid = note.get("ppid") or self.ppid
                self.start_ns = note.get("start_ns") or self.start_ns
                self.parent_main_pid = note.get("parent_main_pid")
                self.role = "worker" if note.get("role") == "worker" else "main"
                self.rank = self.rank if note.get("rank") is None else note["rank"]
            elif note["note"] == "iterator":
                self.worker_pids.update(note.get("workers") or ())
            self.last_ns = max(self.last_ns, note.get("t") or 0)

    def look_at(self, rows: npt.NDArray[Any]) -> None:
        """Take in what its rows say."""
        kinds = rows["kind"]
        self.last_ns = max(self.last_ns, last_ns(rows))
        self.active = self.active or bool(np.isin(kinds, _WORK).any())
        self.backwards += int((kinds == r.BACKWARD).sum())
        optimizers, counts = np.unique(rows["obj"][kinds == r.OPTIMIZER], return_counts=True)
        for optimizer, count in zip(optimizers.tolist(), counts.tolist(), strict=True):
            self.updates[optimizer] = self.updates.get(optimizer, 0) + count


@dataclass(frozen=True, kw_only=True)
class Seat:
    """Where a process belongs: ``owner`` is the key of a worker's training process."""

    role: str  # "main", "worker", "other"
    rank: int
    owner: str | None = None


def assign(everyone: Iterable[Facts]) -> dict[str, Seat]:
    """Seat every process by key."""
    ordered = sorted(everyone, key=lambda facts: facts.start_ns)
    mains = [facts for facts in ordered if facts.role == "main"]
    parents = {parent.key for facts in mains for parent in _started_by(facts, mains)[-1:]}
    # Those that train; where none did, those that started no other observed process.
    training = [facts for facts in mains if facts.active] or [one for one in mains if one.key not in parents]
    ranks = {facts.key: _rank(facts, training) for facts in training}
    seats = {
        facts.key: Seat(
            role="main" if facts.key in ranks else "other", rank=ranks.get(facts.key, facts.rank or 0)
        )
        for facts in mains
    }
    for facts in ordered:
        if facts.role == "worker":
            owner = _owner(facts, mains)
            rank = seats[owner].rank if owner else facts.rank or 0
            seats[facts.key] = Seat(role="worker", rank=rank, owner=owner)
    return seats


def _owner(worker: Facts, mains: Sequence[Facts]) -> str | None:
    """The training process that a worker makes batches for; a pid may come again, so the latest before it."""
    before = [facts for facts in mains if facts.start_ns <= worker.start_ns]
    found = [facts for facts in before if worker.pid in facts.worker_pids]
    found = found or [facts for facts in _started_by(worker, mains) if facts.active]
    found = found or [facts for facts in before if facts.active and facts.rank == worker.rank]
    return found[-1].key if found else None


def _started_by(facts: Facts, mains: Sequence[Facts]) -> list[Facts]:
    pid = facts.parent_main_pid or facts.ppid
    return [one for one in mains if one.pid == pid and one.start_ns <= facts.start_ns and one is not facts]


def _rank(facts: Facts, training: Sequence[Facts]) -> int:
    """Its own, or of siblings without one that run at the same time the next number (``mp.spawn``)."""
    if facts.rank is not None:
        return facts.rank
    return sum(
        one.rank is None
        and one.ppid == facts.ppid
        and one.start_ns < facts.start_ns <= max(one.last_ns, one.start_ns)
        for one in training
    )


_NAME: Final = re.compile(r"^(\d{1,18})-(\d{1,18})\.(rows|notes)$")
#: Rows that one call reads at most: a crashed run's file may be larger than memory should be.
LIMIT: Final = 1 << 20
#: Bytes of notes that one call reads at most.
_NOTES: Final = 1 << 28
#: A place left empty this many rows ago is not going to be filled any more.
_FILL_BEHIND: Final = 16


@dataclass(kw_only=True)
class Observed:
    """One observed process: what is known of it, how far its raw files are read, what of them waits."""

    facts: Facts
    end_ns: int | None = None  # None while it runs, and where nobody saw its end
    rows_read: int = 0
    notes_read: int = 0
    rows: list[npt.NDArray[Any]] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    bad_notes: int = 0
    tail: bool = False  # ``rows`` are only the last of them
    later: Later | None = None  # reads the rows, in the order written; then ``rows`` are iterators' only

    def read_on(self, folder: Path, *, live: bool = False, most: int | None = None) -> bool:
        """Take in what its files hold beyond what is read, ``most`` rows or all; whether there was any."""
        before = (self.rows_read, self.notes_read)
        while True:
            notes, at, bad = read_notes(folder / f"{self.facts.key}.notes", self.notes_read)
            if at == self.notes_read:
                break
            self.notes_read = at
            self.bad_notes += bad
            self.facts.learn(notes)
            self.notes += notes
        while most is None or sum(map(len, self.rows)) < most:
            rows, at = read_rows(folder / f"{self.facts.key}.rows", self.rows_read, live=live)
            if at == self.rows_read:
                break
            self.rows_read = at
            self.rows.append(rows)
            self.facts.look_at(rows)
        return (self.rows_read, self.notes_read) != before


def find(folder: Path) -> list[Facts]:
    """Every process that left raw files in ``folder``, oldest first; empty when there is no such folder."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - called every tick, and names are all it needs
    except (FileNotFoundError, NotADirectoryError):
        return []
    keys = {(int(match[2]), int(match[1])) for name in names if (match := _NAME.match(name))}
    return [
        Facts(key=f"{pid}-{start}", pid=pid, start_ns=start, last_ns=start) for start, pid in sorted(keys)
    ]


def keys(folder: Path) -> set[str]:
    """The processes that have raw files in ``folder``; none where it cannot be read."""
    try:
        return {facts.key for facts in find(folder)}
    except OSError:
        return set()


def with_what_is_left(stored: Iterable[Observed], folder: Path, warnings: list[str]) -> list[Observed]:
    """What is stored of the processes of a run, and what their raw files hold beyond that."""
    known = {one.facts.key: one for one in stored}
    try:
        for facts in find(folder):
            known.setdefault(facts.key, Observed(facts=facts)).read_on(folder)
    except OSError as error:
        warnings.append(f"{error.filename or folder} cannot be read: {error.strerror}")
    return list(known.values())


def read_rows(path: Path, offset: int, *, live: bool) -> tuple[npt.NDArray[Any], int]:
    """Rows written from byte ``offset`` on, dtype ROW_DTYPE, and the offset behind them; at most LIMIT rows.

    A place that was taken but never filled (an exception came in between) is skipped. While the writer lives,
    such a place may still be filled, so rows behind it wait until many follow; the newest row waits too.
    """
    data = _written(path, offset)
    rows = np.frombuffer(data, ROW_DTYPE)
    end = len(rows)
    if live:
        empty = np.flatnonzero(rows["kind"] == 0)
        late = empty[empty >= end - _FILL_BEHIND]
        end = int(late[0]) if len(late) else max(0, end - 1)
    return sound(rows[:end]), offset + end * ROW.size


def sound(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The rows that were filled with something that a probe writes."""
    kinds = rows["kind"]
    return rows[(kinds > 0) & (kinds <= max(KIND_NAMES)) & (rows["start"] < 1 << 62)]


def _written(path: Path, offset: int) -> bytes:
    """Bytes from ``offset`` to the last row that was filled: the file is reserved ahead of it."""
    data = _read(path, offset, LIMIT * ROW.size)
    filled = np.flatnonzero(np.frombuffer(data, np.uint8)[ROW.size - 1 :: ROW.size])  # rows with a kind
    return data[: (int(filled[-1]) + 1) * ROW.size] if len(filled) else b""


def read_notes(path: Path, offset: int) -> tuple[list[Note], int, int]:
    """Whole lines from byte ``offset``: the notes, the offset behind them, how many were not whole notes."""
    data = _read(path, offset, _NOTES)
    end = data.rfind(b"\n") + 1
    found = [parse_note(line) for line in data[:end].splitlines()]
    return [note for note, _ in found if note is not None], offset + end, sum(not whole for _, whole in found)


def _read(path: Path, offset: int, most: int) -> bytes:
    if path.is_file():
        with suppress(FileNotFoundError), path.open("rb", buffering=0) as file:
            file.seek(offset)
            return file.read(most)
    return b""
