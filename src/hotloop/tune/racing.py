"""Who is ahead in a race of arms, who is out of it, and when it is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from typing import Final

from hotloop.remedy.remedy import EFFECTS
from hotloop.tune.candidate import Candidate
from hotloop.tune.ratios import Ratio

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
