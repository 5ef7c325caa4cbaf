"""What losses say of an arm that won: whether its patch computes the same, whether what is called exact is,
and whether what may round otherwise does no more than that.

A patch that rewrites is trained for a few steps beside the unmodified run. What is called exact hands out
what was made before, or elsewhere than in the training process: what it misses shows once epochs repeat.
It is trained into its third epoch, beside the same arm without it, so that nothing else of the arm tells.
So is what may round otherwise. How far a run differs from itself says what is allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from hotloop.compare.losses import STEPS, SameLosses, same_losses
from hotloop.tune.launching import Launcher, Spent
from hotloop.tune.trial import Arm, edited, effect_of, spell

#: Whole epochs of the runs that are to show what epochs change, where the budget has room.
_EPOCHS: Final = (2, 1, 0)


@dataclass(frozen=True, kw_only=True)
class Refused:
    """Remedies that are not taken, and why."""

    remedies: Arm
    why: str


@dataclass(kw_only=True)
class Proofs:
    """What was held so far, by how the remedies are spelled; each is held once."""

    launcher: Launcher
    _told: dict[str, str] = field(default_factory=dict)

    def words(self, arm: Arm, draws: Sequence[str]) -> tuple[str, ...]:
        """What was found of the parts of an arm."""
        names = map(spell, (_rewriting(arm), *_parts(arm, draws)))
        return tuple(f"{name}: {self._told[name]}" for name in names if name in self._told)

    def open(self, arm: Arm) -> Arm:
        """The remedies of an arm whose patch computes by other code, where no losses were held for them."""
        patched = _rewriting(arm)
        return () if spell(patched) in self._told else patched

    def patches(self, arm: Arm) -> Refused | None:
        """What of an arm computes something else by its patch, or was not shown not to for want of time."""
        patched = self.open(arm)
        if not patched:
            return None
        exact = all(effect_of(one) == "exact" for one in patched)
        try:
            found = self._held((), patched, STEPS, exact=exact)
        except Spent as ended:
            why = f"that the patched run has the losses of the unmodified run was not shown: {ended}"
            return Refused(remedies=patched, why=why)
        if found.same is False:
            why = f"the patched run has other losses than the unmodified run: {found.words}"
            return Refused(remedies=patched, why=why)
        self._told[spell(patched)] = _told(found)
        return None

    def results(self, arm: Arm, draws: Sequence[str]) -> Refused | None:
        """What of an arm has other losses than without it: what is called exact, or what may round otherwise.

        Where nothing can be told it stays, by its own checks alone, and that is said.
        """
        refused = (self._beside(arm, part) for part in self._open(arm, draws))
        return next((one for one in refused if one is not None), None)

    def _beside(self, arm: Arm, part: Arm) -> Refused | None:
        name, steps = spell(part), self._steps(arm)
        if not steps:
            self._told[name] = "cannot tell by losses: the budget has no room for it"
            return None
        try:
            found = self._held(_without(arm, part), arm, steps, exact=self._to_the_bit)
            if found.same is False:
                return self._blamed(arm, part, steps, found)
        except Spent as ended:
            self._told[name] = f"cannot tell by losses: {ended}"
            return None
        self._told[name] = _told(found)
        if steps <= self.launcher.epoch:
            self._told[name] += ", all of the first epoch: the budget has no room for a second"
        return None

    def results_s(self, arm: Arm, draws: Sequence[str]) -> float:
        """Seconds of the proofs of an arm's results, into the second epoch; 0 where none is to come."""
        parts = self._open(arm, draws)
        wanted_s = self.launcher.proof_s(self.launcher.epoch + STEPS) * (1 + len(parts)) / 2
        return wanted_s if parts and wanted_s < self.launcher.left_s else 0.0

    def _open(self, arm: Arm, draws: Sequence[str]) -> list[Arm]:
        return [part for part in _parts(arm, draws) if spell(part) not in self._told]

    def _blamed(self, arm: Arm, kept: Arm, steps: int, found: SameLosses) -> Refused:
        """The one of several without which losses are the same, rather what was taken up last; all of them
        where there is no such one.
        """
        base = _without(arm, kept)
        with suppress(Spent):
            for one in reversed(kept) if len(kept) > 1 else ():
                rest = self._held(base, _without(arm, (one,)), steps, exact=self._to_the_bit)
                if rest.same:
                    kept = (one,)
                    break
        return Refused(remedies=kept, why=f"losses with it are others than without: {found.words}")

    @property
    def _to_the_bit(self) -> bool:
        """Whether rounding is asked not to differ: memory that lies otherwise may be enough for that."""
        return self.launcher.limits.allow == "exact"

    def _steps(self, arm: Arm) -> int:
        """Steps of a run: into the third epoch, the second, or a few; 0 where there is no room for these."""
        launcher = self.launcher
        runs = [epochs * launcher.epoch + STEPS for epochs in (_EPOCHS if launcher.epoch else (0,))]
        held = (steps for steps in runs if launcher.proof(arm, steps) in launcher.journal.trials)
        room = (steps for steps in runs if launcher.left_s > launcher.proof_s(steps))
        return next(held, 0) or next(room, 0)

    def _held(self, base: Arm, arm: Arm, steps: int, *, exact: bool) -> SameLosses:
        traced = partial(self.launcher.traced, steps=steps)
        without = traced(base)
        told = without is not None and without.recorded
        return same_losses(
            without,
            traced(arm) if told else None,
            lambda perturbed: traced(base, again="perturbed" if perturbed else "again"),
            exact=exact,
        )


def _told(found: SameLosses) -> str:
    return found.words if found.same else f"cannot tell by losses: {found.words}"


def _rewriting(arm: Arm) -> Arm:
    """The remedies of an arm whose patch computes by other code."""
    return tuple(one for one in edited(arm) if one.remedy.rewrites)


def _parts(arm: Arm, draws: Sequence[str]) -> list[Arm]:
    """What of an arm is to keep every loss, and what may round otherwise, but for patches: those are held by
    themselves. Samples that draw others have other losses anyway.
    """
    held = [one for one in arm if one not in _rewriting(arm) and not (draws and one.remedy.redraws)]
    parts = (tuple(one for one in held if effect_of(one) == effect) for effect in ("exact", "numeric"))
    return [part for part in parts if part]


def _without(arm: Arm, some: Arm) -> Arm:
    return tuple(one for one in arm if one not in some)
