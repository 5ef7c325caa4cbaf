"""Where a noisy series changes its level: PELT on the logarithm, with noise measured from the series itself.

Killick, Fearnhead, Eckley: Optimal detection of changepoints with a linear computational cost, 2012.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from hotloop.stats import robust_deviation

Floats = npt.NDArray[np.float64]

#: A change of level that is worth a person's attention.
LEAST_RATIO: Final = 0.10
#: Of fewer values no change is told.
LEAST_VALUES: Final = 6
_MAX_POINTS: Final = 1200
_NOISE_FLOOR: Final = 0.01
_PENALTY: Final = 4.0


def segments(values: Floats) -> list[int]:
    """Where each level of a positive series starts, 0 first. Values that are not positive do not count."""
    good = np.flatnonzero(np.isfinite(values) & (values > 0))
    if len(good) < LEAST_VALUES:
        return [0]
    block = -(-len(good) // _MAX_POINTS)
    logs = np.log(values[good])
    if block > 1:
        whole = len(logs) // block * block
        logs = np.median(logs[:whole].reshape(-1, block), axis=1)
    clipped = _without_outliers(logs)
    cuts = _merged(clipped, _pelt(clipped, _noise(clipped), 3 if len(clipped) < 40 else 5))
    exact = [0]
    for cut in cuts[1:]:
        exact.append(int(good[min(cut * block, len(good) - 1)]))
    return exact


def level(values: Floats) -> float:
    """The usual value: the median of what is finite and positive."""
    good = values[np.isfinite(values) & (values > 0)]
    return float(np.median(good)) if len(good) else float("nan")


def _without_outliers(logs: Floats, width: int = 7) -> Floats:
    """Values pulled to three deviations from the median around them: an outlier is no change."""
    if len(logs) < 2 * width:
        return logs
    around = running_median(logs, width)
    spread = 3 * max(_NOISE_FLOOR, robust_deviation(logs - around, around=0.0))
    return np.clip(logs, around - spread, around + spread)


def running_median(values: Floats, width: int) -> Floats:
    """[n] the median of the ``width`` values around each one."""
    if len(values) < width:
        return np.full(len(values), np.median(values)) if len(values) else values
    padded = np.pad(values, width // 2, mode="reflect")
    return np.asarray(np.median(np.lib.stride_tricks.sliding_window_view(padded, width), axis=1), float)


def _noise(logs: Floats) -> float:
    """Deviation of one value from its level as its mean over many feels it.

    From differences of neighbours, around their median: levels and trends cancel. In a smoothed or wandering
    series neighbours are alike and far ones are not; the ratio of the two is its autocorrelation, and means
    over it are less certain by (1 + r) / (1 - r) in variance.
    """
    near = _deviation(logs, 1)
    far = max([near, *(_deviation(logs, lag) for lag in (3, 10, 30) if len(logs) >= 15 * lag)])
    alike = min(0.95, 1.0 - (near / far) ** 2) if far > 0 else 0.0
    return max(_NOISE_FLOOR, far * float(np.sqrt((1 + alike) / (1 - alike))))


def _deviation(logs: Floats, lag: int) -> float:
    return robust_deviation(logs[lag:] - logs[:-lag]) / float(np.sqrt(2))


def _pelt(logs: Floats, noise: float, least: int) -> list[int]:
    """Starts of the segments of least squared error plus a penalty each."""
    n = len(logs)
    scaled = logs / noise
    sums = np.concatenate([[0.0], np.cumsum(scaled)])
    squares = np.concatenate([[0.0], np.cumsum(scaled**2)])
    penalty = _PENALTY * np.log(n)
    best = np.full(n + 1, np.inf)
    best[0] = -penalty
    before = np.zeros(n + 1, dtype=np.int64)
    candidates = np.array([0], dtype=np.int64)
    for end in range(least, n + 1):
        sizes = end - candidates
        cost = squares[end] - squares[candidates] - (sums[end] - sums[candidates]) ** 2 / sizes
        total = best[candidates] + cost + penalty
        pick = int(np.argmin(total))
        best[end], before[end] = total[pick], candidates[pick]
        candidates = candidates[total - penalty <= best[end]]
        if end - least + 1 >= least:
            candidates = np.append(candidates, end - least + 1)
    starts, end = [], n
    while end > 0:
        end = int(before[end])
        starts.append(end)
    return starts[::-1]


def _merged(logs: Floats, starts: list[int]) -> list[int]:
    """Without changes smaller than is worth saying, the smallest first."""
    starts = list(starts)
    while len(starts) > 1:
        ends = [*starts[1:], len(logs)]
        levels = [float(np.median(logs[a:b])) for a, b in zip(starts, ends, strict=True)]
        steps = [abs(np.expm1(abs(b - a))) for a, b in pairwise(levels)]
        smallest = int(np.argmin(steps))
        if steps[smallest] >= LEAST_RATIO:
            break
        del starts[smallest + 1]
    return starts
