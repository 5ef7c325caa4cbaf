"""A race: launches of several arms in turns, each beside the arm to beat; what is far behind is out.

What won is confirmed in launches made after it was chosen: the winner of a race is also the luckiest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil, inf, log
from typing import Final

from hotloop.remedy.remedy import EFFECTS
from hotloop.tune.candidate import Candidate, LeftOut
from hotloop.tune.lanes import lanes
from hotloop.tune.launching import Launcher, Spent
from hotloop.tune.proving import Proofs
from hotloop.tune.ratios import Ratio, pooled, unpaired
from hotloop.tune.trial import Arm, Trial, costs, spell

_MOST_ROUNDS: Final = 4
#: Pairs of launches that confirm a winner, and at most.
PAIRS: Final = 2
_MOST_PAIRS: Final = 6
#: Half an interval that needs no more pairs, as a logarithm, and as a part of the gain's.
WIDTH: Final = 0.03
_PART: Final = 0.1
#: A gain smaller than this is not taken up; one that is worth confirming although a race did not show it.
LEAST: Final = 1.01
PROMISING: Final = 1.05
#: An arm this much slower than the best after one round is not launched again.
_FAR_BEHIND: Final = 0.8
#: Of arms that are this close the one that changes least is taken.
_CLOSE: Final = 0.97
#: An arm that is so many times as fast after one round, and alone, is no lucky one.
CLEAR: Final = 1.25


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What was promising and had no room: how it is spelled, and the budget that would have room for it."""

    name: str
    budget_s: float


@dataclass(kw_only=True)
class Known:
    """What a tuning has learned so far; what was measured is in the launcher's journal."""

    left: dict[str, LeftOut] = field(default_factory=dict)
    tried: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)  # remedies under which the command did not run
    wrong: set[str] = field(default_factory=set)  # ids of remedies that proofs refuse, whatever their value
    pairs: list[Sequence[float]] = field(default_factory=list)  # of all races: what the noise is
    won: list[float] = field(default_factory=list)  # pairs of a first race's winner with the unmodified run
    gained: float = 1.0  # of the arm to beat over the unmodified run
    needs: Needs | None = None  # of the first candidate that had no room
    crowded: bool = False  # others used the cores during the unmodified run
    clear: bool = False  # the winner of the last race is no lucky one
    unrivalled: bool = False  # it had no other to beat: its pairs are as good as a confirmation's
    #: What beat the arm in force of its race: its last launch, and what it gained over the unmodified run.
    raced: dict[str, tuple[Candidate, Trial, float]] = field(default_factory=dict)
    climbs: int = 0  # that ended with something that a proof refuses


@dataclass(kw_only=True)
class Race:
    """Races of one tuning, one after the other, and what confirms arms over the unmodified run."""

    launcher: Launcher
    known: Known
    proofs: Proofs
    ran: bool = False  # something of the last race did
    had_room: bool = False  # for a launch of it

    @property
    def _many(self) -> int:
        """Machines at once."""
        return self.launcher.bench.nodes

    def run(
        self, number: int, have: Arm, candidates: Sequence[Candidate], last_base: Trial
    ) -> tuple[Candidate, Trial] | tuple[None, None]:
        """The candidate that beat the arm in force, and its last launch.

        In the first round that arm is not launched again: ``last_base`` was launched just before.
        """
        candidates = self._fitting(f"race-{number}/0", have, candidates)
        self.had_room = bool(candidates)
        alive = {one.name: one for one in candidates}
        told = {one.name: Ratio(ratio=one.predicted or 1.0, low=0.0, high=inf, pairs=0) for one in candidates}
        logs: dict[str, list[float]] = {one.name: [] for one in candidates}
        last: dict[str, Trial] = {}
        rivals = 0
        for turn in range(_MOST_ROUNDS):
            key = f"race-{number}/{turn}"
            expected = [(one.arm, told[name].ratio) for name, one in alive.items()]
            wanted_s = self._wanted_s(have, expected, again=True)
            if not alive or (turn and not self.launcher.room(wanted_s, key)):
                break
            try:
                told_by = lanes(
                    self.launcher,
                    key,
                    have if turn or self._many > 1 else None,
                    [one.arm for one in alive.values()],
                    back=turn % 2 == 1,
                    skip=None if turn else partial(outdone, alive, last_base),
                )
            except Spent:
                break
            found = {name: trial for lane in told_by for name, trial in lane.items()}
            for name in [name for name in alive if name not in found]:
                del alive[name]
                self.known.tried.discard(name)  # of a later race it may be part
                self.known.left[name] = LeftOut(remedy=name, why="predicted to give less than another gave")
            rivals = rivals or len(alive)
            last |= {name: trial for name, trial in found.items() if trial.status == "measured"}
            for lane in told_by:
                self._take(lane, lane.get(spell(have), last_base), alive, logs)
            told |= pooled(logs, self.known.pairs)
            guess = not have and rivals > 1
            whole = all(logs[name] for name in alive)
            if not alive or (whole and not narrow(alive, told, turn, guess=guess)):
                break
        self.ran = bool(last)
        ratios = pooled(logs, self.known.pairs)
        for one in candidates:
            if one.name in last and one.name in ratios and wins(ratios[one.name], least=PROMISING):
                alone = replace(one, predicted=None, bounds=None) if have else one
                gained = self.known.gained * ratios[one.name].ratio
                self.known.raced[one.name] = alone, last[one.name], gained
        self.known.pairs += logs.values()
        told_of = {name: ratios[name].ratio for name in alive if name in ratios}
        winner = simplest(told_of, list(alive.values()))
        if winner is None or not wins(ratios[winner.name], least=CLEAR if have else PROMISING):
            return None, None
        if not have:
            self.known.won, self.known.unrivalled = logs[winner.name], rivals == 1
        self.known.clear = ratios[winner.name].shown or ratios[winner.name].ratio > CLEAR
        self.known.gained *= ratios[winner.name].ratio
        return winner, last[winner.name]

    def _fitting(self, key: str, have: Arm, candidates: Sequence[Candidate]) -> list[Candidate]:
        """As many of the candidates as the budget has room for; the others are not tried.

        The first of them is tried even where its gain could not be confirmed: launches may turn out shorter.
        """
        known = self.launcher.known(key)
        if candidates and not known and self.known.needs is None:
            wanted_s = self._wanted_s(have, [(candidates[0].arm, candidates[0].predicted or 1.0)])
            spent_s = self.launcher.budget_s - self.launcher.left_s
            self.known.needs = Needs(name=candidates[0].name, budget_s=spent_s + wanted_s)
        kept = [one for one in candidates if one.name in known]
        for one in () if known else candidates:
            arms = [(rival.arm, rival.predicted or 1.0) for rival in (*kept, one)]
            if self.launcher.room(self._wanted_s(have, arms, confirmed=bool(kept or have))):
                kept.append(one)
        for one in candidates:
            if one in kept:
                self.known.left.pop(one.name, None)
            else:
                self.known.tried.discard(one.name)
                self.known.left[one.name] = LeftOut(remedy=one.name, why="no room in the budget")
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
        cost_s = [expected(arm, self.known.gained * ratio) for arm, ratio in arms]
        best = max(range(len(arms)), key=lambda number: arms[number][1])
        pairs = ceil((PAIRS - (len(arms) == 1 and not have)) * confirmed / self._many)
        proof_s = self.launcher.proof_s() * any(self.proofs.open(arm) for arm, _ in arms)
        base_s = expected(have, self.known.gained) if again or self._many > 1 else 0.0
        return base_s + sum(cost_s) / self._many + proof_s + pairs * (expected(()) + cost_s[best])

    def _take(
        self,
        found: Mapping[str, Trial],
        base: Trial,
        alive: dict[str, Candidate],
        logs: dict[str, list[float]],
    ) -> None:
        """The ratios of a round; what did not come to an end is out."""
        for name in [name for name in alive if name in found]:
            cost, beside = costs([found[name], base])
            if not found[name].more.get("started", True):
                continue  # no word about the arm
            if cost is None:
                self.known.failed.update(set(found[name].remedies) - set(base.remedies))
                self.known.left[name] = LeftOut(remedy=name, why=found[name].why)
                del alive[name], logs[name]
            elif beside is not None:
                logs[name].append(log(beside / cost))

    # -- in the end ------------------------------------------------------------------------------------------

    def confirm(self, arm: Arm, draws: Sequence[str]) -> tuple[Ratio, bool]:
        """The gain of the whole over the unmodified run, and whether it has pairs of launches of its own.

        More pairs than are needed leave room for the proof that results are kept.
        """
        logs = list(self.known.won) if self.known.unrivalled else []
        patch_s = self.launcher.proof_s() * bool(self.proofs.open(arm))
        results_s = self.proofs.results_s(arm, draws)
        for turn in range(_MOST_PAIRS):
            if len(logs) >= PAIRS and settled(self._told(logs, arm)):
                break
            key = f"{self._confirms}/{turn}"
            wanted_s = self.launcher.expected_s(()) + self.launcher.expected_s(arm, self.known.gained)
            proof_s = patch_s + results_s * (len(logs) >= PAIRS)
            if not self.launcher.room(proof_s + wanted_s, key):
                break
            try:
                told_by = lanes(self.launcher, key, (), [arm], back=turn % 2 == 1)
            except Spent:
                break
            for lane in told_by:
                base, tuned = costs([lane[spell(())], lane[spell(arm)]])
                if base is not None and tuned is not None:
                    logs.append(log(base / tuned))
        if len(logs) >= PAIRS:
            return self._told(logs, arm), True
        if logs and self._many > 1:  # launches of one machine only are compared
            return pooled({"all": logs}, self.known.pairs)["all"], False
        key = f"{self._confirms}/alone"
        if self.launcher.room(self.launcher.expected_s(arm, self.known.gained), key):
            with suppress(Spent):  # two launches of the arm say more of their noise than one
                self.launcher.round(key, [arm])
        return self._unpaired(arm), False

    @property
    def _confirms(self) -> str:
        """What the keys of a confirmation begin with: each has launches of its own time."""
        return f"confirm-{self.known.climbs}" if self.known.climbs else "confirm"

    def _told(self, logs: Sequence[float], arm: Arm) -> Ratio:
        """The ratio of these pairs; those of the race of the same two arms tell of its noise as well.

        Few pairs tell less of their noise than the launches they are made of, each by itself: the launches as
        found all count, those of the arm only where it was not chosen among several for them.
        """
        of_race = [] if self.known.unrivalled else self.known.won
        others = [one for one in self.known.pairs if one is not self.known.won]
        paired = pooled({"all": logs}, others, beside=of_race)["all"]
        if self._many > 1:
            return paired
        alone = self._unpaired(arm, "" if self.known.unrivalled else f"{self._confirms}/")
        return max(paired, alone, key=lambda one: one.freedom)

    def _unpaired(self, arm: Arm, of: str = "") -> Ratio:
        """From all launches of an arm, and all of the unmodified run, the first one too."""
        words = tuple(map(str, arm))
        timed = [one for one in self.launcher.journal.trials.values() if one.timed and "/" in one.key]
        found = [one for one in timed if not one.remedies]
        found += [self.launcher.found] if self.launcher.found is not None else []
        tuned = [one for one in timed if one.remedies == words and one.key.startswith(of)]
        spent = costs([*found, *tuned])
        base, other = (
            [log(cost) for cost in part if cost is not None]
            for part in (spent[: len(found)], spent[len(found) :])
        )
        return unpaired(base, other, crowded=self.known.crowded)


# -- who is ahead --------------------------------------------------------------------------------------------


def outdone(alive: Mapping[str, Candidate], base: Trial, arm: Arm, launched: Mapping[str, Trial]) -> bool:
    """Whether an arm is predicted to be far behind what one launched before it was seen to give."""
    one = alive[spell(arm)]
    most = one.bounds[1] if one.bounds else one.predicted
    costs = [trial.cost_s for trial in launched.values() if trial.cost_s is not None]
    return bool(most and costs and base.cost_s and most < _FAR_BEHIND * base.cost_s / min(costs))


def narrow(alive: dict[str, Candidate], ratios: Mapping[str, Ratio], turn: int, *, guess: bool) -> bool:
    """Drop what cannot win; whether another round is needed. ``guess``: the winner needs no proof yet."""
    best = max((ratios[name] for name in alive), key=lambda one: one.ratio)
    for name in list(alive):
        one = ratios[name]
        behind = one.ratio < _FAR_BEHIND * best.ratio or (turn == 0 and one.ratio < _FAR_BEHIND)
        if (behind or one.high < max(best.low, 1.0)) and one is not best:
            del alive[name]
    if turn < 1:
        clear = len(alive) == 1 and best.ratio > CLEAR and (guess or best.shown)
        return best.ratio > _FAR_BEHIND and not clear
    rest = [ratios[name] for name in alive if ratios[name] is not best]
    # What still lies between arms that are known so well is not worth a launch.
    known = all(one.high < best.ratio or settled(one) for one in rest)
    return not (best.high < LEAST or (best.low > LEAST and known))


def simplest(ratios: Mapping[str, float], candidates: Sequence[Candidate]) -> Candidate | None:
    """Of the candidates that are about as fast as the fastest, the one that changes least."""
    most = max(ratios.values(), default=0.0)
    near = [one for one in candidates if ratios.get(one.name, 0.0) > max(_CLOSE * most, 0.0)]
    return min(near, key=_weight, default=None)


def _weight(one: Candidate) -> tuple[int, int, float]:
    effects = max((EFFECTS.index(part.remedy.effect) for part in one.arm), default=0)
    amounts = sum(part.value for part in one.arm if isinstance(part.value, (int, float)))
    return effects, len(one.arm), float(amounts)


def wins(found: Ratio, *, least: float) -> bool:
    """Whether an arm is taken up. What was not shown has to be ``least`` times as fast.

    It may be a guess then, since the whole is confirmed in the end.
    """
    return found.ratio >= LEAST and (found.shown or found.ratio > least)


def settled(found: Ratio) -> bool:
    """Whether an interval is narrow: in itself, or beside a gain like this."""
    return log(found.high / found.low) / 2 < max(WIDTH, _PART * abs(log(found.ratio)))
