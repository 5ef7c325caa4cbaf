"""Step times as a series: what a step takes itself, how it drifts, which steps stand out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hotloop.measure.steps import Floats, LineCost, Steps
from hotloop.phases import COLUMN, PHASES

#: What happens between steps and has findings of its own.
BETWEEN = ("startup", "evaluation", "checkpoint", "epoch_gap")
INSIDE = tuple(phase for phase in PHASES if phase not in BETWEEN)
#: Of so few steps one is no rare one.
_FEW_STEPS = 40
#: A step that takes this part of the longest may be the same work over again.
_AGAIN = 0.25
#: What changes all the time does more than this part of it within the halves of a series.
_WITHIN = 0.5
#: The statistics look at all pairs of so many points.
_MOST_POINTS = 200


def inside(steps: Steps) -> Floats:
    """[n] seconds of each step without evaluation, checkpoints and epoch gaps."""
    columns = [COLUMN[phase] for phase in INSIDE]
    return np.asarray(steps.phases[:, columns].sum(axis=1))


def one_off(steps: Steps, phase: str, seconds: float) -> bool:
    """Whether most of so many seconds of a phase, over the span, lies in one step, as what is made ready
    between two parts of a training. Where a second step is like it, it comes again (each epoch, every N).
    """
    if steps.num_steps <= _FEW_STEPS:
        return False
    taken = np.sort(steps.phase(phase))
    return bool(seconds - taken[:-1].sum() > 0.5 * seconds and taken[-2] < _AGAIN * taken[-1])


@dataclass(frozen=True, kw_only=True)
class Drift:
    """A steady growth of a series, from the median of its first quarter to that of its last."""

    first: float
    last: float
    mean: float
    slope: float  # Theil-Sen, per value

    @property
    def growth(self) -> float:
        """The last quarter over the first, less one."""
        return self.last / self.first - 1.0


def drift(values: Floats, z: float, blocks: int = 24) -> Drift | None:
    """The growth of a series over its blocks' medians, None with fewer than two values a block, or where it
    is none (Mann-Kendall), or lies in a jump from one level to another: none of it is in either half.
    """
    if len(values) < 2 * blocks:
        return None
    medians = np.array([np.median(part) for part in np.array_split(values, blocks)])
    first, *_, last = (float(np.median(part)) for part in np.array_split(values, 4))
    at = np.arange(blocks, dtype=float) * len(values) / blocks
    halves = zip(np.array_split(at, 2), np.array_split(medians, 2), strict=True)
    within = sum(theil_sen(*half) * len(values) / 2 for half in halves)
    if first <= 0 or mann_kendall_z(medians) < z or within < _WITHIN * (last - first):
        return None
    return Drift(first=first, last=last, mean=float(values.mean()), slope=theil_sen(at, medians))


def steady_growth(t: Floats, values: Floats, *, z: float, goes_on: bool = True) -> float | None:
    """The slope of a series that grows steadily, else None: Mann-Kendall is sure of it and, with ``goes_on``,
    both its halves grow, the later at least half as fast: what levels off is no leak.
    """
    t, values = _thinned(t, values)
    first, second = half_slopes(t, values)
    if mann_kendall_z(values) < z or (goes_on and (first <= 0 or second < 0.5 * first)):
        return None
    slope = theil_sen(t, values)
    return slope if slope > 0 else None


def half_slopes(t: Floats, values: Floats) -> tuple[float, float]:
    """The slopes of the first and of the later half of a series."""
    t, values = _thinned(t, values)
    half = len(t) // 2
    return theil_sen(t[:half], values[:half]), theil_sen(t[half:], values[half:])


def _thinned(t: Floats, values: Floats) -> tuple[Floats, Floats]:
    picked = np.unique(np.linspace(0, len(t) - 1, min(len(t), _MOST_POINTS)).astype(int))
    return t[picked], values[picked]


def theil_sen(x: Floats, y: Floats) -> float:
    """The median of the slopes of all pairs of points: one outlier does not move it."""
    i, j = np.triu_indices(len(x), 1)
    run = x[j] - x[i]
    known = run > 0
    return float(np.median((y[j] - y[i])[known] / run[known])) if known.any() else 0.0


def mann_kendall_z(values: Floats) -> float:
    """The Mann-Kendall trend statistic in standard deviations (no ties assumed)."""
    n = len(values)
    i, j = np.triu_indices(n, 1)
    score = float(np.sign(values[j] - values[i]).sum())
    return score / float(np.sqrt(n * (n - 1) * (2 * n + 5) / 18)) if n > 2 else 0.0


@dataclass(frozen=True, kw_only=True)
class Grown:
    """The phase that grew most from the first to the last quarter. Ratios are last over first, less one."""

    phase: str
    seconds: float
    ratio: float
    rest_ratio: float  # of all other phases together, 0 where they are too short to tell


def grown_phase(steps: Steps, picked: npt.NDArray[np.bool_]) -> Grown:
    """What grew in these steps."""
    first, last = {}, {}
    for phase in INSIDE:
        quarters = np.array_split(steps.phase(phase)[picked], 4)
        first[phase], last[phase] = float(quarters[0].mean()), float(quarters[-1].mean())
    name = max(INSIDE, key=lambda phase: last[phase] - first[phase])
    rest_first = sum(first.values()) - first[name]
    rest_last = sum(last.values()) - last[name]
    telling = rest_first > 0.1 * sum(first.values())
    return Grown(
        phase=name,
        seconds=last[name] - first[name],
        ratio=last[name] / first[name] - 1.0 if first[name] > 0 else float("inf"),
        rest_ratio=rest_last / rest_first - 1.0 if telling else 0.0,
    )


def hottest_line(steps: Steps, phase: str) -> LineCost | None:
    """The costliest sampled user line of a phase."""
    return max(
        (line for line in steps.lines if line.phase == phase), key=lambda line: line.seconds, default=None
    )
