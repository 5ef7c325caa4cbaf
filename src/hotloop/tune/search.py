"""The search: diagnose, race what the diagnosis asks for against the run as it is, take the winner, again.

Launches of different arms take turns (every second round backwards), so that what else the machine does hits
all alike. The winner of a race becomes the run to beat, its own diagnosis says what to try next, and gains
that mask or need each other show. At the end the whole is confirmed against the run as found, in launches of
its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log
from pathlib import Path
from time import monotonic
from typing import Final

from hotloop.errors import CheckFailed, UsageError
from hotloop.remedy.catalogue import Applied
from hotloop.tune.candidates import Candidate, LeftOut, Limits, ideas
from hotloop.tune.journal import Journal
from hotloop.tune.ratios import Ratio, pooled
from hotloop.tune.trial import Arm, Bench, Examined, Ran, Request, Trial, device_bytes, rate, spell
from hotloop.units import duration

#: The first run may take this part of the budget, and no longer than this.
_FIRST_PART: Final = 0.2
_FIRST_S: Final = 90.0
#: Seconds and steps that a launch is meant to show, its start not counted.
_SHOWN_S: Final = 4.0
_SHOWN_STEPS: Final = 30
#: Rounds of a race, pairs of a confirmation.
_MOST_ROUNDS: Final = 4
_PAIRS: Final = 3
_MOST_PAIRS: Final = 6
#: Half an interval that needs no more pairs, as a logarithm, and as a part of the gain's.
_WIDTH: Final = 0.03
_PART: Final = 0.1
#: A gain smaller than this is not taken up.
_LEAST: Final = 1.01
_PROMISING: Final = 1.05
#: An arm this much slower than the best after one round is not launched again.
_FAR_BEHIND: Final = 0.75
#: Arms of one race.
_MOST_ARMS: Final = 5
#: A launch may take so many times as long as the run as found, and this much more.
_PATIENCE: Final = 3.0
_PATIENCE_S: Final = 20.0


class Interrupted(Exception):  # noqa: N818 - the user's wish
    """Told to end; what was tried is kept."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the user asked for."""

    budget_s: float
    limits: Limits


@dataclass(frozen=True, kw_only=True)
class Say:
    """Where progress goes: ``trying`` before a launch (arm, share of the budget spent), ``done`` after it."""

    trying: Callable[[str, float], None]
    done: Callable[[Trial], None]


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """What came of it. ``best`` is empty where nothing beat the run as found by more than the noise."""

    first: Trial
    baseline: Trial | None
    best: Arm
    winner: Trial | None
    gain: Ratio | None
    confirmed: bool
    predicted: float | None
    why: tuple[str, ...]
    trials: tuple[Trial, ...]
    left_out: tuple[LeftOut, ...]
    ended: str


@dataclass(kw_only=True)
class Search:
    """The state of one tuning; everything that was measured is in the journal."""

    bench: Bench
    journal: Journal
    folder: Path
    options: Options
    say: Say
    _begun_s: float = field(default_factory=monotonic)
    _before_s: float = 0.0
    _steps: int | None = None
    _launch_s: float = 0.0
    _left: dict[str, LeftOut] = field(default_factory=dict)
    _tried: set[str] = field(default_factory=set)
    _ended: str = ""
    _pairs: list[Sequence[float]] = field(default_factory=list)  # of all races: what the noise is

    def __post_init__(self) -> None:
        self._before_s = self.journal.seconds

    # -- time ------------------------------------------------------------------------------------------------

    @property
    def left_s(self) -> float:
        """Seconds of the budget that are left; those of an earlier part of this tuning count."""
        return self.options.budget_s - self._before_s - (monotonic() - self._begun_s)

    def _room(self, launches: float, key: str = "") -> bool:
        """Whether the budget has room for so many launches; what is in the journal costs nothing."""
        if key and any(known.startswith(f"{key}/") for known in self.journal.trials):
            return True
        if self.left_s > launches * self._launch_s:
            return True
        self._ended = "the budget is spent"
        return False

    # -- one launch ------------------------------------------------------------------------------------------

    def _trial(self, key: str, arm: Arm, request: Request) -> Trial:
        """The trial of this key: from the journal, or launched now."""
        known = self.journal.trials.get(key)
        if known is not None:
            return known
        self.say.trying(spell(arm), 1 - max(0.0, self.left_s) / self.options.budget_s)
        begun_s = monotonic()
        ran = self.bench.run(request)
        if ran.interrupted:
            raise Interrupted
        trial = replace(_judged(key, arm, request.folder, ran, self.bench), seconds=monotonic() - begun_s)
        self.journal.add(trial)
        return trial

    def _launch(self, key: str, arm: Arm) -> Trial:
        timeout_s = min(_PATIENCE * self._launch_s + _PATIENCE_S, max(1.0, self.left_s))
        request = Request(
            folder=self._new_folder(),
            arm=arm,
            timeout_s=timeout_s,
            steps=self._steps,
            most_bytes=self.options.limits.most_bytes,
        )
        return self._trial(key, arm, request)

    def _new_folder(self) -> Path:
        number = len(self.journal.trials)
        while (folder := self.folder / "trials" / f"{number:03d}").exists():
            number += 1
        return folder

    # -- the whole -------------------------------------------------------------------------------------------

    def run(self) -> Tuned:
        """Search until nothing promising is left or the budget is spent."""
        first, seen = self._first()
        incumbent: Arm = ()
        predicted: float | None = 1.0
        why: list[str] = []
        races: list[Ratio] = []
        base = first
        for number in range(1, 10):
            found = self._ideas(seen, incumbent)
            if not found or self._ended:
                break
            winner, ratio, trials = self._race(number, incumbent, found)
            base = base if number > 1 else trials.get(spell(()), first)
            if winner is None or ratio is None:
                break
            incumbent = winner.arm
            races.append(ratio)
            why.append(winner.why)
            predicted = predicted * winner.predicted if predicted and winner.predicted else None
            seen = self.bench.examine(self.folder / trials[winner.name].folder)
        gain, confirmed, pair = self._confirm(incumbent, races) if incumbent else (None, False, ())
        if gain is not None and not gain.shown:
            incumbent = ()
        return Tuned(
            first=first,
            baseline=pair[0] if pair else base,
            best=incumbent,
            winner=pair[1] if pair and incumbent else None,
            gain=gain,
            confirmed=confirmed,
            predicted=predicted if why else None,
            why=tuple(why),
            trials=tuple(self.journal.trials.values()),
            left_out=tuple(self._left.values()),
            ended=self._ended,
        )

    def _first(self) -> tuple[Trial, Examined]:
        """The run as found, long enough for a diagnosis."""
        stop_s = min(_FIRST_S, _FIRST_PART * self.options.budget_s)
        request = Request(
            folder=self._new_folder(), arm=(), timeout_s=max(2 * stop_s, self.left_s), stop_s=stop_s,
            most_bytes=self.options.limits.most_bytes,
        )  # fmt: skip
        trial = self._trial("first", (), request)
        if trial.status != "measured" or trial.s_per_step is None:
            raise CheckFailed(
                f"the run as found gives nothing to tune: {trial.why}",
                hint=f"its output is in {self.folder / trial.folder / 'output.log'}",
            )
        seen = self.bench.examine(self.folder / trial.folder)
        assert seen.evidence is not None
        self._plan(trial, seen)
        if not self._room(4):
            raise UsageError(
                f"the budget is too small: one launch takes about {duration(self._launch_s)}",
                hint=f"give --budget {max(60, round(10 * self._launch_s))}s or more",
            )
        return trial, seen

    def _plan(self, trial: Trial, seen: Examined) -> None:
        """How many steps a launch runs for, and about how long it takes."""
        assert seen.evidence is not None and trial.s_per_step is not None
        steps = seen.evidence.steps
        num = max(_SHOWN_STEPS, round(_SHOWN_S / trial.s_per_step))
        loader = steps.train_loader()
        epoch = round(loader.batches_per_epoch) if loader is not None else 0
        if 0 < epoch <= 2 * num:  # whole epochs, the first of them not counted
            num = epoch * (1 + -(-num // epoch))
        whole = steps.num_steps
        complete = not trial.more.get("stopped")
        self._steps = None if complete and num > 0.7 * whole else num
        start_s = float(steps.start_s[0]) if whole else 0.0
        wall_s = float(trial.more.get("wall_s") or trial.seconds)
        self._launch_s = min(wall_s, start_s + 1.0 + num * trial.s_per_step) if self._steps else wall_s

    def _ideas(self, seen: Examined, have: Arm) -> list[Candidate]:
        if seen.evidence is None:
            return []
        found = ideas(seen.evidence, seen.findings, have, self.options.limits, self._tried)
        for one in found.left_out:
            self._left.setdefault(one.remedy, one)
        promising = found.candidates[:_MOST_ARMS]
        self._tried.update(one.name for one in promising)
        return list(promising)

    # -- a race ----------------------------------------------------------------------------------------------

    def _race(
        self, number: int, have: Arm, candidates: Sequence[Candidate]
    ) -> tuple[Candidate | None, Ratio | None, Mapping[str, Trial]]:
        """The candidate that beat the arm in force by more than the noise, by how much; the last trials."""
        alive = {one.name: one for one in candidates}
        logs: dict[str, list[float]] = {one.name: [] for one in candidates}
        last: dict[str, Trial] = {}
        for turn in range(_MOST_ROUNDS):
            key = f"race-{number}/{turn}"
            if not self._room(1 + len(alive) + 2 * 2, key):
                break
            arms = [(spell(have), have), *((name, one.arm) for name, one in alive.items())]
            round_ = self._round(key, arms if turn % 2 == 0 else arms[::-1])
            last.update(round_)
            self._take(round_, round_[spell(have)], alive, logs)
            told = pooled(logs, self._pairs)
            if not alive or (all(logs[name] for name in alive) and not self._narrow(alive, told, turn)):
                break
        ratios = pooled(logs, self._pairs)
        self._pairs += logs.values()
        winner = max(ratios.keys() & alive.keys(), key=lambda name: ratios[name].ratio, default=None)
        if winner is None or not _wins(ratios[winner], alone=not have):
            return None, None, last
        return alive[winner], ratios[winner], last

    def _take(
        self,
        found: Mapping[str, Trial],
        base: Trial,
        alive: dict[str, Candidate],
        logs: dict[str, list[float]],
    ) -> None:
        """The ratios of a round; what did not come to an end is out."""
        for name in list(alive):
            cost = found[name].cost_s
            if cost is None:
                self._left[name] = LeftOut(remedy=name, why=found[name].why)
                del alive[name], logs[name]
            elif base.cost_s is not None:
                logs[name].append(log(base.cost_s / cost))

    def _round(self, key: str, arms: Sequence[tuple[str, Arm]]) -> dict[str, Trial]:
        found = {}
        for name, arm in arms:
            found[name] = self._launch(f"{key}/{name}", arm)
            if not arm and found[name].status == "measured":
                self._launch_s = found[name].seconds
            self.say.done(found[name])
        return found

    def _narrow(self, alive: dict[str, Candidate], ratios: Mapping[str, Ratio], turn: int) -> bool:
        """Drop what cannot win; whether another round is needed."""
        if not alive:
            return False
        best = max((ratios[name] for name in alive), key=lambda one: one.ratio)
        for name in list(alive):
            one = ratios[name]
            behind = one.ratio < _FAR_BEHIND * best.ratio or (turn == 0 and one.ratio < _FAR_BEHIND)
            if (behind or one.high < max(best.low, 1.0)) and one is not best:
                del alive[name]
        if turn < 1:
            return best.ratio > _FAR_BEHIND
        rest = [ratios[name] for name in alive if ratios[name] is not best]
        return not (best.high < _LEAST or (best.low > _LEAST and all(one.high < best.ratio for one in rest)))

    # -- the end ---------------------------------------------------------------------------------------------

    def _confirm(self, arm: Arm, races: Sequence[Ratio]) -> tuple[Ratio, bool, tuple[Trial, ...]]:
        """The gain of the whole over the run as found, in pairs of their own."""
        logs: list[float] = []
        pair: tuple[Trial, ...] = ()
        for turn in range(_MOST_PAIRS):
            if not self._room(2, f"confirm/{turn}"):
                break
            arms = [(spell(()), ()), (spell(arm), arm)]
            round_ = self._round(f"confirm/{turn}", arms if turn % 2 == 0 else arms[::-1])
            base, cand = round_[spell(())], round_[spell(arm)]
            if base.cost_s is not None and cand.cost_s is not None:
                logs.append(log(base.cost_s / cand.cost_s))
                pair = (base, cand)
            if len(logs) >= _PAIRS and _settled(pooled({"all": logs}, self._pairs)["all"]):
                break
        if len(logs) >= 2:
            return pooled({"all": logs}, self._pairs)["all"], True, pair
        if len(races) == 1:
            return races[0], False, pair
        return Ratio(ratio=1.0, low=0.0, high=float("inf"), pairs=0), False, pair


def _wins(found: Ratio, *, alone: bool) -> bool:
    """Whether an arm is taken up; the first may be a guess, since the whole is confirmed in the end."""
    return found.ratio >= _LEAST and (found.shown or (alone and found.ratio > _PROMISING))


def _settled(found: Ratio) -> bool:
    """Whether an interval is narrow: in itself, or beside a gain like this."""
    return log(found.high / found.low) / 2 < max(_WIDTH, _PART * abs(log(found.ratio)))


def _judged(key: str, arm: Arm, folder: Path, ran: Ran, bench: Bench) -> Trial:
    """What came of a launch."""
    where = f"{folder.parent.name}/{folder.name}"
    blank = Trial(
        key=key,
        remedies=tuple(map(str, arm)),
        status="failed",
        folder=where,
        seconds=0.0,
        host_bytes=ran.peak_bytes,
        more={"wall_s": ran.wall_s, "stopped": ran.stopped, "would_write": list(ran.would_write)},
    )
    if ran.ended_for:
        return replace(blank, status="ended", why=ran.ended_for)
    seen = bench.examine(folder)
    oom = next((one.message for one in seen.findings if one.id == "memory/out-of-memory"), "")
    if oom or (ran.exit_code and not ran.stopped):
        return replace(blank, why=oom or f"exit code {ran.exit_code}: {ran.last_words}".rstrip(": "))
    if seen.evidence is None:
        return replace(blank, why="no training step was seen")
    missing = [f"{name}: {status}" for name, status in _not_in_effect(arm, seen)]
    if missing:
        return replace(blank, status="refused", why="; ".join(missing))
    found = rate(seen.evidence.ranks, seen.evidence.steps)
    if found is None:
        return replace(blank, why="too few training steps were seen")
    return replace(
        blank,
        status="measured",
        s_per_step=found.s_per_step,
        samples_per_s=found.samples_per_s,
        num_steps=found.num_steps,
        device_bytes=device_bytes(seen.evidence),
    )


def _not_in_effect(arm: Sequence[Applied], seen: Examined) -> list[tuple[str, str]]:
    status = {one.remedy.id: seen.applied.get(one.remedy.id, "nothing was noted") for one in arm}
    return [(name, words) for name, words in status.items() if not words.startswith("in effect")]
