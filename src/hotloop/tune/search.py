"""The search: diagnose, race what the diagnosis asks for against the run as it is, take the winner, again.

Launches of different arms take turns (every second round backwards), so that what else the machine does hits
all alike. The winner of a race becomes the run to beat, its own diagnosis says what to try next, and gains
that mask or need each other show. At the end the whole is confirmed against the run as found, in launches of
its own. Where runs are long, one run of interleaved blocks first says what is not worth a launch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, log
from typing import Any, Final

from hotloop.remedy import catalogue
from hotloop.remedy.live.form import CHANGES, LEFT_TO_SOURCE, MET_NOTHING
from hotloop.tune.candidates import SHORT_EPOCH, Candidate, LeftOut, ideas, onto, pipeline_of, switchable
from hotloop.tune.launching import CACHE, FILL_EPOCHS, Launcher, Spent, epoch_of, fills, rarer
from hotloop.tune.pipeline import Pipeline
from hotloop.tune.proving import Proofs, Refused
from hotloop.tune.racing import CLEAR, LEAST, PROMISING, WIDTH, hopeless, narrow, settled, simplest, wins
from hotloop.tune.ratios import Ratio, pooled, unpaired
from hotloop.tune.trial import Arm, Examined, Trial, spell

#: Rounds of a race, pairs of a confirmation.
_MOST_ROUNDS: Final = 4
_PAIRS: Final = 2
_MOST_PAIRS: Final = 6
#: Two epochs of the run as found may take this part of the budget for what shows from the second on.
_FILL_PART: Final = 0.25
#: Share of a step that it waits, from which on a launch is worth it that tells of steps that do not; the
#: part of the budget its start may take.
_WAITS: Final = 0.2
_ALONE_PART: Final = 0.1
#: Launches that a race of one arm and its confirmation are.
_RACED: Final = 3
_STAYING: Final = "persistent-workers"
#: Arms of one race.
_MOST_ARMS: Final = 5
#: Candidates that make a run of blocks worth its start; seconds for each, at most this part of what is left.
_LEAST_SCREENED: Final = 2
_SCREEN_S: Final = 12.0
_LEAST_SCREEN_S: Final = 6.0
_SCREEN_PART: Final = 0.25
#: An interval of blocks whose ends lie further apart does not speak against a gain.
_TELLING: Final = 1.5


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What was promising and had no room: how it is spelled, and the budget that would have room for it."""

    name: str
    budget_s: float


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """What came of it. ``best`` is empty where nothing beat the run as found by more than the noise.

    ``gain`` is of what won the races, over the run as found; ``confirmed`` in launches made for that.
    ``predicted`` is what the pipeline model said of it beforehand, ``bounds`` its 95 % interval; None where
    part of it is not the loader's: what a finding costs is the most that a remedy can give.
    """

    first: Trial
    best: Arm
    gain: Ratio | None
    confirmed: bool
    predicted: float | None
    bounds: tuple[float, float] | None
    why: tuple[str, ...]
    trials: tuple[Trial, ...]
    left_out: tuple[LeftOut, ...]
    ended: str
    draws: tuple[str, ...] = ()  # generators that the training samples draw from
    turns: tuple[str, ...] = ()  # generators that their order is drawn from by turns with others
    steps: int | None = None  # of a launch; None: to its end
    fill_steps: int = 0  # of one whose cache fills first
    needs: Needs | None = None  # of what was not tried for want of time
    once: int = 0  # batches of a run that goes through its data a single time
    cores: float = 0.0  # that the run may use, where workers are told
    waiting: float = 0.0  # the share of making a batch that waits and does not compute
    proofs: tuple[str, ...] = ()  # what losses say of its patches, and of what is called exact
    refused: tuple[str, ...] = ()  # what won and is not taken for what losses say


@dataclass(frozen=True, kw_only=True)
class _Top:
    """The arm in force when nothing more wins; the rest as in ``Tuned``."""

    arm: Arm
    why: tuple[str, ...]
    predicted: float | None
    bounds: tuple[float, float] | None


@dataclass(kw_only=True)
class Search:
    """The state of one tuning; everything that was measured is in the launcher's journal."""

    launcher: Launcher
    _proofs: Proofs = field(init=False)
    _left: dict[str, LeftOut] = field(default_factory=dict)
    _tried: set[str] = field(default_factory=set)
    _failed: set[str] = field(default_factory=set)  # remedies under which the command did not run
    _wrong: set[str] = field(default_factory=set)  # ids of remedies that proofs refuse, whatever their value
    _climbs: int = 0  # that ended with such
    _written: set[str] = field(default_factory=set)  # remedies whose live form met nothing: patches are tried
    _waiting: list[Candidate] = field(default_factory=list)  # blocks showed a gain; their race is to come
    _pairs: list[Sequence[float]] = field(default_factory=list)  # of all races: what the noise is
    _gained: float = 1.0  # of the arm in force over the run as found
    _won: list[float] = field(default_factory=list)  # pairs of a first race's winner with the run as found
    _refused: list[str] = field(default_factory=list)
    _alone_s: float | None = None  # a step that waits for nothing
    _pipeline: Pipeline | None = None  # of the run as found
    _ran: bool = False  # something of the last race did
    _had_room: bool = False  # for a launch of it
    _anew: bool = False  # a cache saw samples change between epochs
    _needs: Needs | None = None  # of the first candidate that had no room
    _crowded: bool = False  # others used the cores while it ran as found
    _clear: bool = False  # the winner of the last race is no lucky one
    _unrivalled: bool = False  # it had no other to beat: its pairs are as good as a confirmation's

    def __post_init__(self) -> None:
        self._proofs = Proofs(launcher=self.launcher)

    def run(self) -> Tuned:
        """Search until nothing promising is left or the budget is spent."""
        launcher = self.launcher
        first, first_seen = launcher.first()
        known = first_seen.evidence
        self._crowded = first_seen.crowded
        self._pipeline = pipeline_of(known) if known is not None else None
        self._alone_s = self._step_alone()
        numbers = iter(range(1, 10))
        while True:
            top = self._climb(launcher.found or first, first_seen, numbers)
            if len(top.why) > 1:  # what won the first race is not what is confirmed
                self._won, self._unrivalled = [], False
            gain, confirmed = self._confirm(top.arm, first_seen.drawn) if top.arm else (None, False)
            shown = gain is not None and gain.shown and gain.ratio >= LEAST
            if not shown or (
                self._stands(self._proofs.patches(top.arm))
                and self._stands(self._proofs.exact(top.arm, first_seen.drawn))
            ):
                break
            # Once more without what is not taken; what else there was has to win again.
            self._climbs += 1
            self._tried.clear()
            self._won, self._unrivalled, self._gained = [], False, 1.0
        best = top.arm if shown else ()
        return Tuned(
            first=launcher.found or first,
            best=best,
            gain=gain,
            confirmed=confirmed,
            predicted=top.predicted if top.why else None,
            bounds=top.bounds if top.why else None,
            why=top.why,
            trials=tuple(launcher.journal.trials.values()),
            left_out=tuple(map(self._as_measured, self._left.values())),
            ended="the budget is spent" if launcher.spent else "",
            draws=first_seen.draws,
            turns=first_seen.turns,
            steps=launcher.steps,
            fill_steps=FILL_EPOCHS * launcher.epoch,
            needs=self._needs,
            once=launcher.single,
            cores=(self._pipeline.recorded.cores or 0.0) if self._pipeline else 0.0,
            waiting=1 - self._pipeline.make_cores if self._pipeline else 0.0,
            proofs=self._proofs.words(best, first_seen.drawn),
            refused=tuple(self._refused),
        )

    def _climb(self, base: Trial, seen: Examined, numbers: Iterator[int]) -> _Top:
        """The winner of a race, the winner of the next on top of it, until nothing wins any more."""
        launcher = self.launcher
        best: Arm = ()
        predicted: float | None = 1.0
        bounds: tuple[float, float] | None = (1.0, 1.0)
        why: list[str] = []
        for number in numbers:
            found = self._ideas(seen, best)
            if number == 1:
                found = self._screen(found, seen)
            written, gained, anew = len(self._written), self._gained, self._anew
            winner, trial = self._race(number, best, found, base) if found else (None, None)
            if winner is not None and self._clear and not self._stands(self._proofs.patches(winner.arm)):
                self._gained = gained
                self._tried.difference_update(one.name for one in found)
                continue
            # Nothing of them ran: there may be room now for what there was none for beside them.
            if found and self._had_room and not self._ran and launcher.left_s > 0:
                launcher.spent = False
                continue
            if len(self._written) > written or (winner is None and self._anew and not anew):
                continue
            if winner is None or trial is None:
                break
            best, base = winner.arm, trial
            why.append(winner.why)
            known = winner.bounds
            predicted = predicted * winner.predicted if predicted and winner.predicted and known else None
            bounds = (bounds[0] * known[0], bounds[1] * known[1]) if bounds and known else None
            seen = launcher.examine(trial)
        return _Top(arm=best, why=tuple(why), predicted=predicted, bounds=bounds)

    def _stands(self, refused: Refused | None) -> bool:
        """Whether a proof refuses nothing. What it does is not tried again."""
        if refused is None:
            return True
        self._refused.append(refused.name)
        for one in refused.remedies:
            self._wrong.add(one.remedy.id)
            self._left[one.remedy.id] = LeftOut(remedy=one.remedy.id, why=refused.why)
        return False

    def _as_measured(self, left: LeftOut) -> LeftOut:
        """Without the most that its cause costs, where an arm that answers the same gave more.

        Files of samples are no use where a cache of them is refused for the same.
        """
        trials = self.launcher.journal.trials.values()
        if self._anew and catalogue.parse(left.remedy).remedy.stores:
            return LeftOut(remedy=left.remedy, why=f"{CHANGES}: files of samples would not")
        base = self._costs(())
        for trial in trials if left.most and base else ():
            answers = any(left.cause in catalogue.parse(one).remedy.answers for one in trial.remedies)
            if trial.timed and answers and trial.cost_s and max(base) - log(trial.cost_s) > log(left.most):
                return replace(left, most=0.0)
        return left

    def _step_alone(self) -> float | None:
        """What a step takes that waits for nothing: where steps wait, a launch of its own is worth it."""
        launcher = self.launcher
        pipeline = self._pipeline
        if pipeline is None or pipeline.device_s or pipeline.waited_s < _WAITS * pipeline.measured_s:
            return None
        if (pipeline.recorded.ranks or 1) > 1:  # they would end at different steps
            return None
        # The model is less sure without it; a gain that no launches are left to confirm is none.
        dear = launcher.start_s > _ALONE_PART * launcher.budget_s
        dear = dear or launcher.left_s < launcher.start_s + _RACED * launcher.launch_s
        if "alone" not in launcher.journal.trials and dear:
            return None
        with suppress(Spent):
            return launcher.alone()
        return None

    # -- what to try -----------------------------------------------------------------------------------------

    def _ideas(self, seen: Examined, have: Arm) -> list[Candidate]:
        if seen.evidence is None:
            return []
        launcher = self.launcher
        if launcher.patches is not None:
            launcher.patches.hear(seen.findings, have)
        told = ideas(
            seen.evidence,
            seen.findings,
            have,
            launcher.limits,
            self._tried,
            once=launcher.once,
            alone_s=self._alone_s,
            cannot=self._cannot if launcher.patches is not None else None,
            written=self._written,
            several=launcher.patches.several if launcher.patches is not None else (),
            draws=seen.draws,
            anew=self._anew,
        )
        for left in told.left_out:
            self._left.setdefault(left.remedy, left)
        waiting = [replace(one, arm=onto(have, one.arm)) for one in self._waiting]
        found = {
            one.name: one
            for one in (*waiting, *told.candidates)
            if self._may_run(one.arm) and self._shows(one, have, seen.draws)
        }
        self._waiting = []
        promising = list(found.values())[:_MOST_ARMS]
        self._tried.update(one.name for one in promising)
        return [one for one in promising if {*map(str, one.arm)} != {*map(str, have)}]

    def _may_run(self, arm: Arm) -> bool:
        """Whether no remedy of an arm has failed, or was refused."""
        failed = self._failed & set(map(str, arm))
        return not failed and not any(one.remedy.id in self._wrong for one in arm)

    def _cannot(self, arm: Arm) -> str:
        """Why no trial can be made of an arm that needs a patch; "" where one can."""
        launcher = self.launcher
        why = launcher.patches.cannot(arm) if launcher.patches is not None else ""
        if why:
            return f"no patch: {why}"
        if launcher.steps is None or not rarer(arm):
            return ""
        if not launcher.sees(arm) or launcher.expected_s(arm) > _FILL_PART * launcher.budget_s:
            return "comes too rarely for a trial"
        return ""

    def _shows(self, one: Candidate, have: Arm, draws: Sequence[str]) -> bool:
        """Whether a candidate could show anything in a launch."""
        launcher = self.launcher
        why = ""
        if launcher.steps is not None and 2 * launcher.epoch_s > _FILL_PART * launcher.budget_s:
            words = f"shows from the second epoch on, and an epoch has {launcher.epoch:,} steps"
            why = f"{words}: too long for a trial"
        if launcher.once:
            why = "the run reads each sample once"
        filled = [applied.remedy.id for applied in one.arm if fills((applied,))]
        if draws and CACHE in filled:
            why = f"samples draw from {', '.join(draws)}: they are others in each epoch"
        if not why or not filled or fills(have):
            return True
        self._left[filled[0]] = LeftOut(remedy=filled[0], why=why)
        return False

    def _screen(self, found: list[Candidate], seen: Examined) -> list[Candidate]:
        """What interleaved blocks of one run leave of the candidates: the best of them, what they cannot see.

        For long runs: what is switched on and off within one needs no launches of its own. Blocks do not see
        what lies between epochs, so short epochs are left to launches.
        """
        switched = [one for one in found if len(one.arm) == 1 and switchable(one.arm[0])]
        short = 0 < epoch_of(seen) < SHORT_EPOCH
        brief = _SCREEN_PART * self.launcher.left_s < _LEAST_SCREEN_S * len(switched)
        brief = brief and "blocks" not in self.launcher.journal.trials
        if self.launcher.steps is None or len(switched) < _LEAST_SCREENED or short or brief:
            return found
        try:
            trial = self.launcher.blocks(self._blocks(switched))
        except Spent:
            return found
        rows = {row["intervention"]: row for row in trial.more.get("rows", ()) if row["ratio"] is not None}
        known = [one for one in switched if one.name in rows]
        gaining = []
        for one in known:
            (low, high), ratio = rows[one.name]["ci95"], rows[one.name]["ratio"]
            if low > 1 or (ratio > PROMISING and high / low > _TELLING):
                gaining.append(one)
            else:
                words = f"{ratio:.2f}x in interleaved blocks ({low:.2f} - {high:.2f})"
                self._left[one.name] = LeftOut(remedy=one.name, why=words)
        best = simplest({one.name: rows[one.name]["ratio"] for one in gaining}, gaining)
        self._waiting = [
            one for one in gaining if best is not None and one.arm[0].remedy.id != best.arm[0].remedy.id
        ]
        return [*([best] if best is not None else []), *(one for one in found if one not in known)]

    def _blocks(self, candidates: Sequence[Candidate]) -> dict[str, Any]:
        remedies = [(one.name, one.arm[0]) for one in candidates]
        return {
            "interventions": [
                {"name": name, "remedy": [one.remedy.id, one.value, one.remedy.live]}
                for name, one in remedies
            ],
            "budget_s": min(_SCREEN_PART * self.launcher.left_s, _SCREEN_S * len(candidates)),
            "width": WIDTH,
        }

    # -- a race ----------------------------------------------------------------------------------------------

    def _race(
        self, number: int, have: Arm, candidates: Sequence[Candidate], last_base: Trial
    ) -> tuple[Candidate, Trial] | tuple[None, None]:
        """The candidate that beat the arm in force, and its last launch.

        In the first round that arm is not launched again: ``last_base`` was launched just before.
        """
        candidates = self._fitting(f"race-{number}/0", have, candidates)
        self._had_room = bool(candidates)
        alive = {one.name: one for one in candidates}
        told = {one.name: Ratio(ratio=one.predicted or 1.0, low=0.0, high=inf, pairs=0) for one in candidates}
        logs: dict[str, list[float]] = {one.name: [] for one in candidates}
        last: dict[str, Trial] = {}
        rivals, paired, written = 0, True, len(self._written)
        for turn in range(_MOST_ROUNDS):
            key = f"race-{number}/{turn}"
            expected = [(one.arm, told[name].ratio) for name, one in alive.items()]
            wanted_s = self._wanted_s(have, expected, again=True)
            if not alive or (turn and not self.launcher.room(wanted_s, key)):
                break
            arms = [one.arm for one in alive.values()]
            needless = None if turn else partial(self._needless, last_base, alive)
            # Which of several is the fastest shows without the run as found; they are confirmed against it.
            among = not have and rivals > 1 and min(told[name].ratio for name in alive) > CLEAR
            paired = paired and (not turn or not among)
            arms = [have, *arms] if turn and not among else arms
            try:
                found = self.launcher.round(key, arms[::-1] if turn % 2 else arms, needless)
            except Spent:
                break
            self._forget(found, alive, logs)
            rivals = rivals or len(alive)
            last |= {name: trial for name, trial in found.items() if trial.status == "measured"}
            self._take(found, found.get(spell(have), last_base), alive, logs)
            if len(self._written) > written:  # the others race beside the patch
                self._tried.difference_update(alive)
                return None, None
            told |= pooled(logs, self._pairs)
            guess = not have and rivals > 1
            whole = all(logs[name] for name in alive)
            if not alive or (whole and not narrow(alive, told, turn, guess=guess)):
                break
        self._ran = bool(last)
        ratios = pooled(logs, self._pairs)
        self._pairs += logs.values() if paired else ()
        told_of = {name: ratios[name].ratio for name in alive if name in ratios}
        winner = simplest(told_of, list(alive.values()))
        if winner is None or not wins(ratios[winner.name], least=CLEAR if have else PROMISING):
            return None, None
        if not have:
            self._won, self._unrivalled = logs[winner.name] if paired else [], rivals == 1
        self._clear = ratios[winner.name].shown or ratios[winner.name].ratio > CLEAR
        self._gained *= ratios[winner.name].ratio
        return winner, last[winner.name]

    def _needless(
        self, base: Trial, alive: Mapping[str, Candidate], arm: Arm, found: Mapping[str, Trial]
    ) -> bool:
        """Whether an arm that is yet to be launched would have to be far faster than predicted to win."""
        known = [trial.cost_s for trial in found.values() if trial.cost_s is not None]
        return bool(known and base.cost_s) and hopeless(alive[spell(arm)], (base.cost_s or 0.0) / min(known))

    def _forget(
        self, found: Mapping[str, Trial], alive: dict[str, Candidate], logs: dict[str, list[float]]
    ) -> None:
        """What was not launched after all may come back on top of what won."""
        for name in alive.keys() - found.keys():
            self._tried.discard(name)
            del alive[name], logs[name]

    def _fitting(self, key: str, have: Arm, candidates: Sequence[Candidate]) -> list[Candidate]:
        """As many of the candidates as the budget has room for; the others are not tried.

        The first of them is tried even where its gain could not be confirmed: launches may turn out shorter.
        """
        known = self.launcher.known(key)
        if candidates and not known and self._needs is None:
            wanted_s = self._wanted_s(have, [(candidates[0].arm, candidates[0].predicted or 1.0)])
            spent_s = self.launcher.budget_s - self.launcher.left_s
            self._needs = Needs(name=candidates[0].name, budget_s=spent_s + wanted_s)
        kept = [one for one in candidates if one.name in known]
        for one in () if known else candidates:
            arms = [(rival.arm, rival.predicted or 1.0) for rival in (*kept, one)]
            if self.launcher.room(self._wanted_s(have, arms, confirmed=bool(kept or have))):
                kept.append(one)
        self._tried.difference_update(one.name for one in candidates if one not in kept)
        return kept

    def _wanted_s(
        self,
        have: Arm,
        arms: Sequence[tuple[Arm, float]],
        *,
        confirmed: bool = True,
        again: bool = False,
    ) -> float:
        """Seconds of a round of arms so much faster than the one in force, and to have the best confirmed.

        ``again``: a round in which that one is launched as well.
        """
        if not arms:
            return 0.0
        expected = self.launcher.expected_s
        cost_s = [expected(arm, self._gained * ratio) for arm, ratio in arms]
        best = max(range(len(arms)), key=lambda number: arms[number][1])
        pairs = (_PAIRS - (len(arms) == 1 and not have)) * confirmed
        proof_s = self.launcher.proof_s() * any(self._proofs.open(arm) for arm, _ in arms)
        base_s = expected(have, self._gained) if again else 0.0
        return base_s + sum(cost_s) + proof_s + pairs * (expected(()) + cost_s[best])

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
            if not found[name].more.get("started", True):
                continue  # no word about the arm
            if cost is None and self._to_write(alive[name], found[name], base):
                self._tried.discard(name)
                del alive[name], logs[name]
            elif cost is None:
                self._failed.update(set(found[name].remedies) - set(base.remedies))
                if CHANGES in found[name].why:  # workers that stay would keep what a cache would
                    self._anew = True
                    self._failed.add(_STAYING)
                    self._left[_STAYING] = LeftOut(remedy=_STAYING, why=CHANGES)
                self._left[name] = LeftOut(remedy=name, why=found[name].why)
                del alive[name], logs[name]
            elif base.cost_s is not None:
                logs[name].append(log(base.cost_s / cost))
        for name in [name for name, one in alive.items() if self._anew and _STAYING in map(str, one.arm)]:
            del alive[name], logs[name]

    def _to_write(self, one: Candidate, refused: Trial, base: Trial) -> bool:
        """Whether an arm that was one live form which met nothing to act on is to be tried as a patch."""
        new = [applied for applied in one.arm if applied.is_live and str(applied) not in base.remedies]
        idle = refused.status == "refused" and refused.why.endswith((MET_NOTHING, LEFT_TO_SOURCE))
        if not idle or len(new) != 1 or not new[0].remedy.source or self.launcher.patches is None:
            return False
        self._written.add(new[0].remedy.id)
        return True

    # -- the end ---------------------------------------------------------------------------------------------

    def _confirm(self, arm: Arm, draws: Sequence[str]) -> tuple[Ratio, bool]:
        """The gain of the whole over the run as found, and whether it has pairs of launches of its own.

        More pairs than are needed leave room for the proof that results are kept.
        """
        logs = list(self._won) if self._unrivalled else []
        patch_s = self.launcher.proof_s() * bool(self._proofs.open(arm))
        exact_s = self._proofs.exact_s(arm, draws)
        for turn in range(_MOST_PAIRS):
            if len(logs) >= _PAIRS and settled(self._told(logs, arm)):
                break
            key = f"{self._confirms}/{turn}"
            wanted_s = self.launcher.expected_s(()) + self.launcher.expected_s(arm, self._gained)
            proof_s = patch_s + exact_s * (len(logs) >= _PAIRS)
            if not self.launcher.room(proof_s + wanted_s, key):
                break
            try:
                found = self.launcher.round(key, [(), arm] if turn % 2 == 0 else [arm, ()])
            except Spent:
                break
            base, tuned = found[spell(())].cost_s, found[spell(arm)].cost_s
            if base is not None and tuned is not None:
                logs.append(log(base / tuned))
        if len(logs) >= _PAIRS:
            return self._told(logs, arm), True
        key = f"{self._confirms}/alone"
        if self.launcher.room(self.launcher.expected_s(arm, self._gained), key):
            with suppress(Spent):  # two launches of the arm say more of their noise than one
                self.launcher.round(key, [arm])
        return unpaired(self._costs(()), self._costs(arm), crowded=self._crowded), False

    @property
    def _confirms(self) -> str:
        """What the keys of a confirmation begin with: each has launches of its own time."""
        return f"confirm-{self._climbs}" if self._climbs else "confirm"

    def _told(self, logs: Sequence[float], arm: Arm) -> Ratio:
        """The ratio of these pairs; those of the race of the same two arms tell of its noise as well.

        Few pairs tell less of their noise than the launches they are made of, each by itself: the launches as
        found all count, those of the arm only where it was not chosen among several for them.
        """
        of_race = [] if self._unrivalled else self._won
        others = [one for one in self._pairs if one is not self._won]
        paired = pooled({"all": logs}, others, beside=of_race)["all"]
        tuned = self._costs(arm, "" if self._unrivalled else f"{self._confirms}/")
        return max(
            paired, unpaired(self._costs(()), tuned, crowded=self._crowded), key=lambda one: one.freedom
        )

    def _costs(self, arm: Arm, of: str = "") -> list[float]:
        """Logarithms of what launches of an arm cost, those of the races and the first run too."""
        words = tuple(map(str, arm))
        trials = [trial for trial in self.launcher.journal.trials.values() if trial.timed]
        raced = [trial for trial in trials if "/" in trial.key and trial.key.startswith(of)]
        found = [trial.cost_s for trial in raced if trial.remedies == words]
        if not arm and self.launcher.found is not None:
            found.append(self.launcher.found.cost_s)
        return [log(cost) for cost in found if cost is not None]
