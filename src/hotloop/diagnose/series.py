"""Step times as a series: what a step takes itself, how it drifts, which steps stand out."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
import numpy.typing as npt

from hotloop.measure.steps import LineCost, Steps
from hotloop.phases import COLUMN, PHASES
from hotloop.record.spill import release

Floats = npt.NDArray[np.float64]

#: What happens between steps and has findings of its own.
BETWEEN = ("startup", "evaluation", "checkpoint", "epoch_gap")
INSIDE = tuple(phase for phase in PHASES if phase not in BETWEEN)
_AT_ONCE = 1 << 16
#: Of so few steps one is no rare one.
_FEW_STEPS = 40
#: A step that takes this part of the longest may be the same work over again.
_AGAIN = 0.25
#: The statistics look at all pairs of so many points.
_MOST_POINTS = 200
#: A level is so many blocks long, and on levels a series does less than this part of its change.
_LEVEL, _WITHIN = 3, 0.25


def inside(steps: Steps) -> Floats:
    """[n] seconds of each step without evaluation, checkpoints and epoch gaps."""
    columns = [COLUMN[phase] for phase in INSIDE]
    result = np.empty(len(steps.phases))
    for at in range(0, len(result), _AT_ONCE):  # a copy of all columns would be the largest thing in memory
        result[at : at + _AT_ONCE] = steps.phases[at : at + _AT_ONCE, columns].sum(axis=1)
    release(steps.phases)
    return result


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
    """A steady change of a series. ``growth`` is the last quarter over the first, less one; ``z``
    Mann-Kendall's. ``in_jumps``: it is at one level, then at another, and does not change on either.
    """

    growth: float
    first: float
    last: float
    mean: float
    slope: float  # Theil-Sen, per value
    z: float
    monotone: bool  # each quarter's median no smaller than the one before
    in_jumps: bool


def drift(values: Floats, blocks: int = 24) -> Drift | None:
    """The drift of a series over its blocks' medians, None with fewer than two values per block."""
    if len(values) < 2 * blocks:
        return None
    parts = np.array_split(values, blocks)
    medians = np.array([np.median(part) for part in parts])
    quarters = np.array([np.median(part) for part in np.array_split(values, 4)])
    if quarters[0] <= 0:
        return None
    return Drift(
        growth=float(quarters[-1] / quarters[0] - 1.0),
        first=float(quarters[0]),
        last=float(quarters[-1]),
        mean=float(values.mean()),
        slope=theil_sen(np.arange(blocks, dtype=float) * len(values) / blocks, medians),
        z=mann_kendall_z(medians),
        monotone=bool((np.diff(quarters) >= 0).all()),
        in_jumps=any(_in_levels(medians, count, quarters[-1] - quarters[0]) for count in (2, 3)),
    )


def _in_levels(medians: Floats, count: int, change: float) -> bool:
    """Whether a series changes between so many levels and not on them. One that changes all the time does
    half of it within whatever levels it is cut into.
    """
    cuts = combinations(range(_LEVEL, len(medians) - _LEVEL + 1), count - 1)
    parts = [np.split(medians, cut) for cut in cuts if all(b - a >= _LEVEL for a, b in pairwise(cut))]
    levels = min(parts, key=lambda found: sum(float(((one - one.mean()) ** 2).sum()) for one in found))
    halves = [np.array_split(level, 2) for level in levels]
    within = sum(float(np.median(late) - np.median(early)) for early, late in halves)
    return within < _WITHIN * change


def steady_growth(t: Floats, values: Floats, *, z: float, goes_on: bool = True) -> float | None:
    """The slope of a series that grows steadily, else None: Mann-Kendall is sure of it and, with ``goes_on``,
    both its halves grow, the later at least half as fast: what levels off is no leak.
    """
    picked = np.unique(np.linspace(0, len(t) - 1, min(len(t), _MOST_POINTS)).astype(int))
    t, values = t[picked], values[picked]
    half = len(t) // 2
    first, second = theil_sen(t[:half], values[:half]), theil_sen(t[half:], values[half:])
    if mann_kendall_z(values) < z or (goes_on and (first <= 0 or second < 0.5 * first)):
        return None
    slope = theil_sen(t, values)
    return slope if slope > 0 else None


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
