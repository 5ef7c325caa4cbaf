"""Ratios of speeds from few noisy launches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, sqrt
from typing import Final

from hotloop.stats import NORMAL95, mean_of, pooled_deviation, t95

#: Launches that agree better than this agree by luck.
_LEAST_SD: Final = 0.004
#: Launches of a command differ by less, on a machine that others crowd as well.
_MOST_SD: Final = 0.5


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """How many times faster, with its 95 % interval, over so many pairs of launches or blocks.

    ``freedom``: the degrees of freedom that its noise was told with.
    """

    ratio: float
    low: float
    high: float
    pairs: int
    freedom: int = 0

    @property
    def shown(self) -> bool:
        """Whether a gain was shown: the interval lies above 1."""
        return self.low > 1


def pooled(
    logs: Mapping[str, Sequence[float]],
    before: Iterable[Sequence[float]] = (),
    beside: Sequence[float] = (),
) -> dict[str, Ratio]:
    """The ratio of each arm from the logarithms of its pairs.

    All arms are launches of one command on one machine: their noise is taken as one, which makes three
    launches of each of four arms tell what twelve of one would. ``before`` are pairs of earlier races,
    ``beside`` earlier pairs of the same arms, of which the noise is told but not the ratio.
    """
    known = {name: list(values) for name, values in logs.items() if values}
    groups = [*([*values, *beside] for values in known.values()), *(values for values in before if values)]
    deviation, freedom = pooled_deviation(groups)
    sd = max(_LEAST_SD, deviation)
    found = {}
    for name, values in known.items():
        mean = mean_of(values)
        half = t95(freedom) * sd / sqrt(len(values)) if freedom else inf
        found[name] = _ratio(mean, half, len(values), freedom)
    return found


def _ratio(mean: float, half: float, pairs: int, freedom: int) -> Ratio:
    low, high = (exp(min(700.0, edge)) for edge in (mean - half, mean + half))
    return Ratio(ratio=exp(mean), low=low, high=high, pairs=pairs, freedom=freedom)


def unpaired(base: Sequence[float], tuned: Sequence[float], *, crowded: bool = False) -> Ratio:
    """The ratio from logarithms of seconds that are not pairs, both with the same noise.

    Where few launches say little of it, the noise is taken for as large as it ever is: of one launch of each
    only a gain of four times and more shows. So it is in a crowd where one of them was launched once: others
    come and go, and that launches right behind each other agree says nothing of the one before.
    """
    if not base or not tuned:
        return Ratio(ratio=1.0, low=0.0, high=inf, pairs=0)
    mean = mean_of(base) - mean_of(tuned)
    deviation, freedom = pooled_deviation([base, tuned])
    sd = max(_LEAST_SD, deviation) if freedom else 0.0
    most = NORMAL95 * max(_MOST_SD, sd)
    told = freedom and not (crowded and min(len(base), len(tuned)) == 1)
    half = (min(most, t95(freedom) * sd) if told else most) * sqrt(1 / len(base) + 1 / len(tuned))
    return _ratio(mean, half, min(len(base), len(tuned)), freedom)
