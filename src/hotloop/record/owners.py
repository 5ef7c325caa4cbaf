"""Who is who among the observed processes: which train, which are their workers, which only came along."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hotloop.record import rows as r
from hotloop.record.recording import Note

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

    key: str
    pid: int
    start_ns: int
    ppid: int = 0
    role: str = "main"
    rank: int | None = None
    parent_main_pid: int | None = None
    worker_pids: set[int] = field(default_factory=set)
    active: bool = False  # it left a row of training's work
    first_ns: int = 0
    last_ns: int = 0
    fetched: bool = False  # a batch was handed out since the last backward
    batches: int = 0  # that a backward followed
    backwards: int = 0
    updates: dict[int, int] = field(default_factory=dict)  # optimizer -> steps

    @property
    def steps(self) -> int:
        """Steps so far, counted as the probe counts them (``probe.counting``)."""
        return max([self.batches, *self.updates.values()]) or self.backwards

    def learn(self, notes: Iterable[Note]) -> None:
        """Take in what its notes say."""
        for note in notes:
            kind = note["note"]
            if kind == "process":
                self._introduce(note)
            elif kind == "iterator" and isinstance(note.get("workers"), list):
                self.worker_pids.update(pid for pid in note["workers"] if isinstance(pid, int))
            self.saw(_int(note.get("t")) or 0)

    def look_at(self, rows: npt.NDArray[Any], last_ns: int) -> None:
        """Take in what its rows say; ``last_ns`` is when the last of them closed."""
        if len(rows):
            self.saw(last_ns)
            self.active = self.active or bool(np.isin(rows["kind"], _WORK).any())
            self._count(rows)

    def _count(self, rows: npt.NDArray[Any]) -> None:
        kinds = rows["kind"]
        ends = (kinds == r.FETCH) & ((rows["flags"] & r.FETCH_END) != 0)
        picked = rows[((kinds == r.FETCH) & ~ends) | (kinds == r.BACKWARD)]["kind"]
        if len(picked):
            before = np.concatenate([[r.FETCH if self.fetched else r.BACKWARD], picked[:-1]])
            backward = picked == r.BACKWARD
            self.batches += int((backward & (before == r.FETCH)).sum())
            self.backwards += int(backward.sum())
            self.fetched = bool(picked[-1] == r.FETCH)
        for optimizer, count in zip(
            *np.unique(rows[kinds == r.OPTIMIZER]["obj"], return_counts=True), strict=True
        ):
            self.updates[int(optimizer)] = self.updates.get(int(optimizer), 0) + int(count)

    def saw(self, at_ns: int) -> None:
        """It was alive at this time."""
        self.last_ns = max(self.last_ns, at_ns)

    def _introduce(self, note: Note) -> None:
        self.ppid = _int(note.get("ppid")) or self.ppid
        self.start_ns = _int(note.get("start_ns")) or self.start_ns
        self.parent_main_pid = _int(note.get("parent_main_pid"))
        self.role = "worker" if note.get("role") == "worker" else "main"
        rank = _int(note.get("rank"))
        self.rank = self.rank if rank is None else rank


@dataclass(frozen=True, kw_only=True)
class Seat:
    """Where a process belongs: ``owner`` is the key of a worker's training process."""

    role: str  # "main", "worker", "other"
    rank: int
    owner: str | None = None


def assign(everyone: Sequence[Facts], parents: Mapping[int, int] | None = None) -> dict[str, Seat]:
    """Seat every process by key. ``parents`` are pid -> ppid of processes that were not observed."""
    family = _Family(everyone, parents or {})
    mains = [facts for facts in everyone if facts.role == "main"]
    ranks = _numbered(family.training(mains))
    seats = {
        facts.key: Seat(
            role="main" if facts.key in ranks else "other", rank=ranks.get(facts.key, facts.rank or 0)
        )
        for facts in mains
    }
    for facts in everyone:
        if facts.role == "worker":
            owner = family.owner(facts)
            rank = seats[owner.key].rank if owner else facts.rank or 0
            seats[facts.key] = Seat(role="worker", rank=rank, owner=owner.key if owner else None)
    return seats


class _Family:
    """The processes by pid; a pid may come again, so a lookup says when."""

    def __init__(self, everyone: Sequence[Facts], parents: Mapping[int, int]) -> None:
        self._everyone = sorted(everyone, key=lambda facts: facts.start_ns)
        self._parents = parents
        self._mains = [facts for facts in self._everyone if facts.role == "main"]
        self._by_pid: dict[int, list[Facts]] = {}
        for facts in self._everyone:
            self._by_pid.setdefault(facts.pid, []).append(facts)

    def training(self, mains: Sequence[Facts]) -> list[Facts]:
        """Those that train; where none did, those that started no other observed process."""
        active = [facts for facts in mains if facts.active]
        if active:
            return active
        above = {id(parent) for facts in mains for parent in self._ancestors(facts)}
        return [facts for facts in mains if id(facts) not in above]

    def owner(self, worker: Facts) -> Facts | None:
        """The training process a worker makes batches for."""
        mains = [facts for facts in self._mains if facts.start_ns <= worker.start_ns]
        for facts in reversed(mains):
            if worker.pid in facts.worker_pids:
                return facts
        above = [facts for facts in self._ancestors(worker) if facts.role == "main"]
        for facts in above:
            if facts.active:
                return facts
        if above:
            return above[0]
        alike = [facts for facts in mains if facts.active and facts.rank == worker.rank]
        return alike[-1] if alike else None

    def _ancestors(self, facts: Facts) -> list[Facts]:
        """Observed processes above this one, nearest first."""
        found: list[Facts] = []
        pid, before = facts.parent_main_pid or facts.ppid, facts.start_ns
        for _ in range(64):
            parent = self._at(pid, before)
            if parent is not None and parent is not facts:
                found.append(parent)
                pid, before = parent.parent_main_pid or parent.ppid, parent.start_ns
            elif pid in self._parents:
                pid = self._parents[pid]
            else:
                break
        return found

    def _at(self, pid: int, before_ns: int) -> Facts | None:
        """The process that had this pid at that time."""
        found = [facts for facts in self._by_pid.get(pid, ()) if facts.start_ns <= before_ns]
        return found[-1] if found else None


def _numbered(training: Sequence[Facts]) -> dict[str, int]:
    """Ranks by key. Siblings without a rank that ran at the same time are counted (``mp.spawn``)."""
    ranks: dict[str, int] = {}
    for facts in sorted(training, key=lambda facts: facts.start_ns):
        if facts.rank is not None:
            ranks[facts.key] = facts.rank
            continue
        beside = [
            other
            for other in training
            if other.rank is None
            and other.ppid == facts.ppid
            and other.start_ns < facts.start_ns <= max(other.last_ns, other.start_ns)
        ]
        ranks[facts.key] = len(beside)
    return ranks


def _int(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
