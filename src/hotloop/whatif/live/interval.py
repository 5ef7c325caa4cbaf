"""The mean of a few numbers with its 95 % interval (Student's t), with the standard library alone."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, sqrt
from statistics import fmean, stdev

#: Two-sided 95 % quantiles of Student's t by degrees of freedom.
_T95 = (
    inf, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
    2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045,
)  # fmt: skip


def t95(freedom: int) -> float:
    """The quantile; beyond the table its expansion in 1/freedom (Abramowitz and Stegun 26.7.5)."""
    if freedom < len(_T95):
        return _T95[max(0, freedom)]
    return 1.95996 + 2.37227 / freedom + 2.82250 / freedom**2


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, lower and upper edge; edges are infinite with fewer than two values."""
    if not values:
        return 0.0, -inf, inf
    mean = fmean(values)
    if len(values) < 2:
        return mean, -inf, inf
    half = t95(len(values) - 1) * stdev(values) / sqrt(len(values))
    return mean, mean - half, mean + half
