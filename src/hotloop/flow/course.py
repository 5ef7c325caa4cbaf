"""What the launcher knows of a training while it goes on: steps, pace, losses, where its processes are.

Fed by ``record.store`` with the rows and notes that it stores anyhow. Times are of ``hotloop.clock``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hotloop.foreign import clean
from hotloop.record import rows as r
from hotloop.record.recording import Note, durations_ns
from hotloop.record.store import Member
from hotloop.stats import median
from hotloop.torch_facts import SERIALIZERS, TORCH_PHASES

#: Rows that come although nothing moves on.
_IDLE: Final = (r.SAMPLE, r.DEVICE, r.SOCKET, r.GC)
#: An interval between two updates that holds one of these is no plain step.
_APART: Final = (r.ITER, r.SHUTDOWN, r.SAVE, r.COMPILE)
_GRAD_OF_MODEL: Final = r.FORWARD_GRAD | r.FORWARD_PARAMS
#: A window of the pace holds at least this many plain steps.
_WINDOW_STEPS: Final = 30
_RECENT: Final = 64


@dataclass(frozen=True)
class Window:
    """Samples per second over plain steps: their mean, and what the typical step reaches; and what part of
    their time they waited for data.
    """

    last_step: int
    mean: float
    typical: float
    waiting: float


@dataclass
class Pace:
    """Windows of plain steps, each of ``window_s`` seconds at least: the first few and the latest."""

    window_s: float
    first: list[Window] = field(default_factory=list)
    latest: list[Window] = field(default_factory=list)
    recent: list[tuple[float, float]] = field(default_factory=list)  # seconds and samples of the last steps
    _open: list[tuple[float, float]] = field(default_factory=list)
    _open_s: float = 0.0
    _waited_s: float = 0.0

    def add(
        self, seconds: npt.NDArray[Any], samples: npt.NDArray[Any], step: int, waited_s: float = 0.0
    ) -> None:
        """Plain steps, the last of them number ``step``; together they waited so long for data."""
        self._waited_s += waited_s
        steps = list(zip(seconds.tolist(), samples.tolist(), strict=True))
        self.recent = [*self.recent, *steps[-_RECENT:]][-_RECENT:]
        for at in range(0, len(steps), _WINDOW_STEPS):
            piece = steps[at : at + _WINDOW_STEPS]
            self._open += piece
            self._open_s += sum(took for took, _ in piece)
            if self._open_s >= self.window_s and len(self._open) >= _WINDOW_STEPS:
                self._close(step - len(steps) + at + len(piece))

    def _close(self, step: int) -> None:
        sizes = sum(count for _, count in self._open)
        per_sample = median([took / count for took, count in self._open])
        waiting = min(1.0, self._waited_s / self._open_s)
        found = Window(step, sizes / self._open_s, 1 / per_sample if per_sample else 0.0, waiting)
        if len(self.first) < 6:
            self.first.append(found)
        else:
            self.latest = [*self.latest, found][-3:]
        self._open, self._open_s, self._waited_s = [], 0.0, 0.0

    @property
    def usual_s(self) -> float:
        """The median of the last steps in seconds, 0 before any."""
        return median([took for took, _ in self.recent])

    @property
    def samples_per_s(self) -> float | None:
        """Over the last plain steps; None before any."""
        spent = sum(took for took, _ in self.recent)
        return sum(count for _, count in self.recent) / spent if spent else None

    def fell_to(self, ratio: float) -> tuple[float, float] | None:
        """Samples per second before and now, where three windows on end are below ``ratio`` of each of the
        first, but the very first, by mean and by typical step.
        """
        before, now = self.first[1:], self.latest
        if len(self.first) < 6 or len(now) < 3:
            return None
        for kind in ("mean", "typical"):
            least = min(getattr(one, kind) for one in before)
            if max(getattr(one, kind) for one in now) >= ratio * least:
                return None
        return median([one.mean for one in before]), median([one.mean for one in now])

    def came_to_wait(self, little: float, much: float) -> tuple[float, float] | None:
        """The parts of the time that steps waited for data before and now, where each of three windows on
        end has at least ``much`` and none of the first, but the very first, more than ``little``.
        """
        before, now = [one.waiting for one in self.first[1:]], [one.waiting for one in self.latest]
        if len(self.first) < 6 or len(now) < 3 or max(before) > little or min(now) < much:
            return None
        return median(before), median(now)


@dataclass
class Followed:
    """One observed process. Steps are updates of its optimizer that made most."""

    member: Member
    pace: Pace
    ended: bool = False  # it said that it is about to exit
    moved_ns: int = 0  # its last row that is part of the training's work ended
    longest_gap_ns: int = 0  # between two such rows, once there was a step
    samples_seen: float = 0.0
    loss: float | None = None  # the last one recorded
    bad_losses: int = 0  # on end
    retries: int = 0  # of the device's allocator, since its 50th step
    device_bytes: float = 0.0  # allocated
    shutdown_ns: int = 0  # workers of an iterator of its were last shut down
    sampled_ns: int = 0
    _stack: int = 0
    _stacks: dict[int, tuple[str, int, str, tuple[str, ...]]] = field(default_factory=dict)
    _lead: int = -1
    _step_ns: int = 0
    _since: float = 0.0  # samples fetched since the last update
    _apart: bool = False
    _fed: bool = False  # by a DataLoader whose batches have a known size
    _retries_before: float | None = None

    @property
    def steps(self) -> int:
        """Updates so far."""
        return self.member.facts.steps

    @property
    def is_worker(self) -> bool:
        """Whether it makes batches for another."""
        return self.member.facts.role == "worker"

    @property
    def lives(self) -> bool:
        """Whether it runs and has not begun to end."""
        return not (self.member.gone or self.ended)

    def take(self, pieces: Sequence[npt.NDArray[Any]], notes: Sequence[Note]) -> None:
        """What came since the last tick."""
        for note in notes:
            self._learn(note)
        for rows in pieces:
            if len(rows):
                self._look(rows)

    def _learn(self, note: Note) -> None:
        kind = note["note"]
        if kind == "stack" and (frames := note.get("frames")):
            file, line, func = (*frames[-1], "", 0, "")[:3]
            self._stacks[note["id"]] = str(file), line or 0, str(func), tuple(note.get("library") or ())
        elif kind == "exit":
            self.ended = True
        elif kind == "memory":
            self.device_bytes = note.get("device_allocated") or self.device_bytes
            retries = note.get("alloc_retries") or 0.0
            if self.steps > 50:
                before = self._retries_before = (
                    retries if self._retries_before is None else self._retries_before
                )
                self.retries = int(retries - before)

    def _look(self, rows: npt.NDArray[Any]) -> None:
        kinds, ends = rows["kind"], rows["start"].astype(np.int64) + durations_ns(rows)
        samples = np.flatnonzero(kinds == r.SAMPLE)
        if len(samples):
            self._stack, self.sampled_ns = int(rows["value"][samples[-1]]), int(ends[samples[-1]])
        work = np.maximum.accumulate(ends[~np.isin(kinds, _IDLE)])
        if len(work):
            if self.moved_ns and self.steps:
                gaps = np.diff(work, prepend=self.moved_ns)
                self.longest_gap_ns = max(self.longest_gap_ns, int(gaps.max()))
            self.moved_ns = max(self.moved_ns, int(work[-1]))
        if (kinds == r.SHUTDOWN).any():
            self.shutdown_ns = int(ends[kinds == r.SHUTDOWN][-1])
        for value in rows["value"][kinds == r.LOSS].view("<f4").tolist():
            self.loss = value
            self.bad_losses = 0 if isfinite(value) else self.bad_losses + 1
        self._count(rows, kinds, ends)

    def _count(self, rows: npt.NDArray[Any], kinds: npt.NDArray[Any], ends: npt.NDArray[Any]) -> None:
        """Steps and what each fetched; those with evaluation, a save or a new pass in them are left out."""
        updates = self.member.facts.updates
        lead = max(updates, key=lambda one: updates[one], default=-1)
        if updates.get(lead, 0) > updates.get(self._lead, -10) + 10 or self._lead not in updates:
            self._lead, self._step_ns = lead, 0  # of two that take turns, one and the same
        lead = self._lead
        at = np.flatnonzero((kinds == r.OPTIMIZER) & (rows["obj"] == lead))
        fed = (kinds == r.FETCH) & (rows["value"] > 0)
        self._fed |= bool(fed.any())
        counted = fed if self._fed else kinds == r.STEP
        fetched = np.cumsum(np.where(counted, rows["value"], 0).astype(np.float64))
        forward = (kinds == r.FORWARD) & ((rows["flags"] & _GRAD_OF_MODEL) == r.FORWARD_PARAMS)
        apart = np.cumsum(np.isin(kinds, _APART) | forward)
        self.samples_seen += float(fetched[-1])
        if not len(at):
            self._since += float(fetched[-1])
            self._apart |= bool(apart[-1])
            return
        seconds = np.diff(ends[at], prepend=self._step_ns) / 1e9
        counts = np.diff(fetched[at], prepend=-self._since)
        plain = np.diff(apart[at], prepend=-int(self._apart)) == 0
        plain[0] &= self._step_ns > 0
        if not counts[plain].any():
            counts[:] = 1.0  # of batches whose size is not known, steps
        plain &= counts > 0
        waited = np.cumsum(np.where(kinds == r.FETCH, durations_ns(rows), 0))
        waits = np.diff(waited[at], prepend=0)
        if plain.any():
            self.pace.add(seconds[plain], counts[plain], self.steps, float(waits[plain].sum()) / 1e9)
        self._step_ns = int(ends[at[-1]])
        self._since = float(fetched[-1] - fetched[at[-1]])
        self._apart = bool(apart[-1] - apart[at[-1]])

    def place(self, now_ns: int) -> str:
        """Where its thread was last seen, with what it was doing; "" where that is not known."""
        if self._stack not in self._stacks:
            return ""
        file, line, func, library = self._stacks[self._stack]
        doing = _doing(library)
        old = (now_ns - self.sampled_ns) / 1e9
        words = f"{Path(file).name}:{line} in {func}" + (f", {doing}" if doing else "")
        return clean(words + (f" ({old:.0f} s ago; in native code since)" if old > 5 else ""))


def _doing(library: Sequence[str]) -> str:
    """What library functions, outermost first, are at."""
    modules = [entry.partition(":")[0] for entry in library]
    for names, words in (
        ("torch.distributed", "in a collective"),
        ("torch.utils.data.dataloader", "waiting for data"),
        (SERIALIZERS, "writing or reading a file"),
    ):
        if any(module.startswith(names) for module in modules):
            return words
    return next((TORCH_PHASES[entry] for entry in library if entry in TORCH_PHASES), "")


class Course:
    """Every observed process of a run. ``follow`` is for ``Store``."""

    def __init__(self, *, window_s: float = 20.0) -> None:
        self._window_s = window_s
        self._known: dict[str, Followed] = {}
        self._done: set[str] = set()  # workers that ended as they should

    def follow(self, member: Member, rows: Sequence[npt.NDArray[Any]], notes: Sequence[Note]) -> None:
        """Rows and notes that came of one process."""
        key = member.facts.key
        if key in self._done:
            return
        one = self._known.setdefault(key, Followed(member, Pace(self._window_s)))
        one.take(rows, notes)
        if one.is_worker and one.ended:
            self._done.add(key)
            del self._known[key]

    @property
    def trainers(self) -> list[Followed]:
        """Living processes that have made a step."""
        return [one for one in self._known.values() if one.steps and one.lives and not one.is_worker]

    @property
    def workers(self) -> list[Followed]:
        """Every worker that was seen, without those that ended as they should."""
        return [one for one in self._known.values() if one.is_worker]

    @property
    def lead(self) -> Followed | None:
        """The living process that made most steps."""
        return max(self.trainers, key=lambda one: one.steps, default=None)
