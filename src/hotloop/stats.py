"""Intervals of few noisy numbers: Student's t, ratios of paired times, robust deviations.

Plain Python: a what-if run asks for intervals in the user's process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import exp, fsum, inf, sqrt
from typing import Any, Protocol

#: Two-sided 95 % quantile of the normal distribution.
NORMAL95 = 1.95996

#: Two-sided 95 % quantiles of Student's t by degrees of freedom.
_T95 = (
    inf, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
    2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045,
)  # fmt: skip

#: A deviation is this times the median distance from the median, where values are normal.
_NORMAL_MAD = 1.4826


class Values(Protocol):
    """Numbers: a list, a tuple or an array of numpy."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...


def t95(freedom: float) -> float:
    """The quantile; beyond the table its expansion in 1/freedom (Abramowitz and Stegun 26.7.5)."""
    if freedom < len(_T95):
        return _T95[max(0, int(freedom))]
    return NORMAL95 + 2.37227 / freedom + 2.82250 / freedom**2


def mean_of(values: Values) -> float:
    """The mean; 0 of no values."""
    return fsum(values) / len(values) if len(values) else 0.0


def pooled_deviation(groups: Iterable[Values]) -> tuple[float, int]:
    """The deviation of values around the means of their groups, and its degrees of freedom."""
    squares, freedom = 0.0, 0
    for values in groups:
        mean = mean_of(values)
        squares += fsum((value - mean) ** 2 for value in values)
        freedom += max(0, len(values) - 1)
    return (sqrt(squares / freedom), freedom) if freedom else (inf, 0)


def standard_error(values: Values) -> float:
    """Of the mean of the values; infinite with fewer than two."""
    deviation, freedom = pooled_deviation([values])
    return deviation / sqrt(len(values)) if freedom else inf


def half_width(values: Values) -> float:
    """Half of the 95 % interval of the mean; infinite with fewer than two values."""
    return t95(len(values) - 1) * standard_error(values) if len(values) > 1 else inf


def interval(values: Values) -> tuple[float, float, float]:
    """Mean, lower and upper edge of its 95 % interval; edges are infinite with fewer than two values."""
    mean, half = mean_of(values), half_width(values)
    return mean, mean - half, mean + half


def ratio_interval(logs: Values) -> tuple[float, float, float]:
    """Ratio, lower and upper edge from the logarithms of ratios of pairs."""
    mean, low, high = interval(logs)
    return exp(mean), exp(low), exp(min(700.0, high))


def welch(one: float, freedom_one: float, other: float, freedom_other: float) -> float:
    """Degrees of freedom of a difference whose sides have these standard errors (Welch, Satterthwaite)."""
    below = one**4 / max(1, freedom_one) + other**4 / max(1, freedom_other)
    return (one**2 + other**2) ** 2 / below if below > 0 else freedom_one + freedom_other


def median(values: Values) -> float:
    """The middle value, or the mean of the two in the middle; 0 of no values."""
    ordered: list[float] = sorted(values)
    half = len(ordered) // 2
    if not ordered:
        return 0.0
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def robust_deviation(values: Values, around: float | None = None) -> float:
    """The deviation as the median distance from the median, or from ``around``, tells it."""
    centre = median(values) if around is None else around
    return _NORMAL_MAD * median([abs(value - centre) for value in values])
