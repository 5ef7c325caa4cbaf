"""The search: diagnose, race what the diagnosis asks for against the run as it is, take the winner, again.

Launches of different arms take turns (every second round backwards), so that what else the machine does hits
all alike. The winner of a race becomes the run to beat, its own diagnosis says what to try next, and gains
that mask or need each other show. At the end the whole is confirmed against the unmodified run, in
launches of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from hotloop.tune.candidate import Candidate, LeftOut
from hotloop.tune.ideas import ideas
from hotloop.tune.launching import FILL_EPOCHS, Launcher
from hotloop.tune.proving import Proofs, Refused
from hotloop.tune.race import LEAST, Known, Needs, Race, simplest
from hotloop.tune.ratios import Ratio
from hotloop.tune.trial import CACHE, Arm, Examined, Trial, fills, spell

#: Two epochs of the unmodified run may take this part of the budget for what shows from the second on.
_FILL_PART: Final = 0.25
#: Arms of one race.
_MOST_ARMS: Final = 5
#: The unmodified run.
_NOTHING: Final = Candidate(arm=(), why="", predicted=1.0, bounds=(1.0, 1.0))


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """What came of it. ``best`` is empty where nothing beat the unmodified run by more than the noise.

    ``gain`` is of what won the races, over the unmodified run; ``confirmed`` in launches made for that.
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
    steps: int | None = None  # of a launch; None: to its end
    fill_steps: int = 0  # of one whose cache fills first
    epoch: int = 0  # its batches, 0 where they are not known
    needs: Needs | None = None  # of what was not tried for want of time
    once: int = 0  # batches of a run that goes through its data a single time
    proofs: tuple[str, ...] = ()  # what losses say of its parts
    refused: tuple[str, ...] = ()  # what won and is not taken for what losses say
    named: bool = False  # whether the run as found has a finding that is no mere information
    crowded: bool = False  # others used the cores during the unmodified run


@dataclass(kw_only=True)
class Search:
    """One tuning, from the unmodified run to what is recommended."""

    launcher: Launcher
    known: Known = field(default_factory=Known)
    proofs: Proofs = field(init=False)
    _races: Race = field(init=False)
    _refused: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.proofs = Proofs(launcher=self.launcher)
        self._races = Race(launcher=self.launcher, known=self.known, proofs=self.proofs)

    def run(self) -> Tuned:
        """Search until nothing promising is left or the budget is spent."""
        launcher = self.launcher
        first, first_seen = launcher.first()
        self.known.crowded = first_seen.crowded
        numbers = iter(range(1, 10))
        start, base = _NOTHING, launcher.found or first
        while True:
            top, why = self._climb(start, base, launcher.examine(base) if start.arm else first_seen, numbers)
            if len(why) > 1:  # what won the first race is not what is confirmed
                self.known.won, self.known.unrivalled = [], False
            gain, confirmed = self._races.confirm(top.arm, first_seen.draws) if top.arm else (None, False)
            shown = gain is not None and gain.shown and gain.ratio >= LEAST
            if not shown or (
                self._stands(self.proofs.patches(top.arm))
                and self._stands(self.proofs.results(top.arm, first_seen.draws))
            ):
                break
            # Once more without what is not taken, from the best of what ran.
            self.known.climbs += 1
            self.known.tried.clear()
            self.known.won, self.known.unrivalled = [], False
            start, base, self.known.gained = self._rest(launcher.found or first)
        best = top.arm if shown else ()
        taken = {*map(str, best)}
        return Tuned(
            first=launcher.found or first,
            best=best,
            gain=gain,
            confirmed=confirmed and shown,
            predicted=top.predicted if why else None,
            bounds=top.bounds if why else None,
            why=why,
            trials=tuple(launcher.journal.trials.values()),
            left_out=tuple(
                one for one in self.known.left.values() if not {*one.remedy.split(" + ")} <= taken
            ),
            ended="the budget is spent" if launcher.spent else "",
            crowded=self.known.crowded,
            draws=first_seen.draws,
            steps=launcher.steps,
            fill_steps=FILL_EPOCHS * launcher.epoch,
            epoch=launcher.epoch,
            needs=self.known.needs,
            once=launcher.single,
            proofs=self.proofs.words(best, first_seen.draws),
            refused=tuple(self._refused),
            named=any(one.severity != "info" for one in first_seen.findings),
        )

    def _rest(self, first: Trial) -> tuple[Candidate, Trial, float]:
        """Of the arms that won a race or nearly, without what is refused: the fastest that changes least."""
        rest = {name: one for name, one in self.known.raced.items() if self._may_run(one[0].arm)}
        gained = {name: one[2] for name, one in rest.items()}
        best = simplest(gained, [one[0] for one in rest.values()])
        return rest[best.name] if best is not None else (_NOTHING, first, 1.0)

    def _climb(
        self, start: Candidate, base: Trial, seen: Examined, numbers: Iterator[int]
    ) -> tuple[Candidate, tuple[str, ...]]:
        """The winner of a race, of the next on top of it, until nothing wins any more; why each was tried."""
        launcher = self.launcher
        best, predicted, bounds = start.arm, start.predicted, start.bounds
        why = [start.why] if best else []
        for number in numbers:
            found = self._ideas(seen, best)
            gained = self.known.gained
            winner, trial = self._races.run(number, best, found, base) if found else (None, None)
            if winner is not None and self.known.clear and not self._stands(self.proofs.patches(winner.arm)):
                self.known.gained = gained
                self.known.tried.difference_update(one.name for one in found)
                continue
            # Nothing of them ran: there may be room now for what there was none for beside them.
            if found and self._races.had_room and not self._races.ran and launcher.left_s > 0:
                launcher.spent = False
                continue
            if winner is None or trial is None:
                if found and self._races.ran:
                    continue  # more may have been asked for than one race takes
                break
            best, base = winner.arm, trial
            why.append(winner.why)
            known = winner.bounds
            predicted = predicted * winner.predicted if predicted and winner.predicted and known else None
            bounds = (bounds[0] * known[0], bounds[1] * known[1]) if bounds and known else None
            seen = launcher.examine(trial)
        return Candidate(arm=best, why="", predicted=predicted, bounds=bounds), tuple(why)

    def _stands(self, refused: Refused | None) -> bool:
        """Whether a proof refuses nothing. What it does is not tried again."""
        if refused is None:
            return True
        self._refused.append(spell(refused.remedies))
        for one in refused.remedies:
            self.known.wrong.add(one.remedy.id)
            self.known.left[one.remedy.id] = LeftOut(remedy=one.remedy.id, why=refused.why)
        return False

    # -- what to try -----------------------------------------------------------------------------------------

    def _ideas(self, seen: Examined, have: Arm) -> list[Candidate]:
        if seen.evidence is None:
            return []
        launcher = self.launcher
        if launcher.patches is not None:
            launcher.patches.hear(seen.findings, have)
        candidates, left_out = ideas(
            seen.evidence,
            seen.findings,
            have,
            launcher.limits,
            self.known.tried,
            once=launcher.once,
            cannot=self._cannot,
            draws=seen.draws,
            steps=launcher.steps,
        )
        for left in left_out:
            self.known.left.setdefault(left.remedy, left)
        runnable = (one for one in candidates if self._may_run(one.arm))
        promising = [one for one in runnable if self._shows(one, have, seen.draws)][:_MOST_ARMS]
        self.known.tried.update(one.name for one in promising)
        return [one for one in promising if {*map(str, one.arm)} != {*map(str, have)}]

    def _may_run(self, arm: Arm) -> bool:
        """Whether no remedy of an arm has failed, or was refused."""
        failed = self.known.failed & set(map(str, arm))
        return not failed and not any(one.remedy.id in self.known.wrong for one in arm)

    def _cannot(self, arm: Arm) -> str:
        """Why no trial can be made of an arm that needs a patch; "" where one can."""
        launcher = self.launcher
        why = launcher.patches.cannot(arm) if launcher.patches is not None else ""
        return f"no patch: {why}" if why else ""

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
        self.known.left[filled[0]] = LeftOut(remedy=filled[0], why=why)
        return False
