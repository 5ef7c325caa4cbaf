"""The gain of the whole, in launches made after it was chosen: the winner of a race is also the luckiest."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import log
from typing import Final

from hotloop.tune.launching import Launcher, Spent
from hotloop.tune.proving import Proofs
from hotloop.tune.race import PAIRS, Known
from hotloop.tune.racing import settled
from hotloop.tune.ratios import Ratio, pooled, unpaired
from hotloop.tune.trial import Arm, spell

_MOST_PAIRS: Final = 6


@dataclass(kw_only=True)
class Confirmation:
    """Confirms arms over the unmodified run."""

    launcher: Launcher
    known: Known
    proofs: Proofs

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
                found = self.launcher.round(key, [(), arm] if turn % 2 == 0 else [arm, ()])
            except Spent:
                break
            base, tuned = found[spell(())].cost_s, found[spell(arm)].cost_s
            if base is not None and tuned is not None:
                logs.append(log(base / tuned))
        if len(logs) >= PAIRS:
            return self._told(logs, arm), True
        key = f"{self._confirms}/alone"
        if self.launcher.room(self.launcher.expected_s(arm, self.known.gained), key):
            with suppress(Spent):  # two launches of the arm say more of their noise than one
                self.launcher.round(key, [arm])
        return unpaired(self.costs(()), self.costs(arm), crowded=self.known.crowded), False

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
        tuned = self.costs(arm, "" if self.known.unrivalled else f"{self._confirms}/")
        return max(
            paired, unpaired(self.costs(()), tuned, crowded=self.known.crowded), key=lambda one: one.freedom
        )

    def costs(self, arm: Arm, of: str = "") -> list[float]:
        """Logarithms of what launches of an arm cost, those of the races and the first run too."""
        words = tuple(map(str, arm))
        trials = [trial for trial in self.launcher.journal.trials.values() if trial.timed]
        raced = [trial for trial in trials if "/" in trial.key and trial.key.startswith(of)]
        found = [trial.cost_s for trial in raced if trial.remedies == words]
        if not arm and self.launcher.found is not None:
            found.append(self.launcher.found.cost_s)
        return [log(cost) for cost in found if cost is not None]
