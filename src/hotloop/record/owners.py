"""Who is who among the observed processes: which train, which are their workers, which only came along."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hotloop.record import rows as r
from hotloop.record.recording import Note, last_ns

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
