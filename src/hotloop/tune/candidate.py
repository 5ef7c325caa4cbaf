"""What may be tried: an arm with why and with what is predicted of it, or why it is left out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hotloop.remedy import catalogue
from hotloop.remedy.catalogue import Applied
from hotloop.remedy.remedy import Effect
from hotloop.tune.trial import Arm, spell


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """An arm to try in place of the one in force. ``predicted``: speed ratio to that one, where known."""

    arm: Arm
    why: str
    predicted: float | None = None
    bounds: tuple[float, float] | None = None

    @property
    def name(self) -> str:
        """How it is spelled."""
        return spell(self.arm)


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """What is not tried, and why; ``by_hand`` says how to do it.

    ``most`` is what ``cause`` costs as a whole, as a ratio; 0 where that is not known.
    """

    remedy: str
    why: str
    by_hand: str = ""
    most: float = 0.0
    cause: str = ""

    @property
    def words(self) -> str:
        """Why, with what it can give at most."""
        return self.why + (f"; up to {self.most:.2f}x, all that {self.cause} costs" if self.most else "")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a candidate must keep to."""

    allow: Effect
    most_bytes: float | None = None


def onto(have: Arm, new: Iterable[Applied]) -> Arm:
    """``have`` with remedies added; what they replace or exclude goes."""
    added = list(new)
    names = [one.remedy.id for one in added]
    kept = [
        one
        for one in have
        if one.remedy.id not in names
        and not any(catalogue.exclude_each_other(one.remedy.id, name) for name in names)
    ]
    return tuple(sorted([*kept, *added], key=lambda one: one.remedy.id))
