"""Intervals are Student's, pooled noise counts its degrees of freedom, robust deviations ignore outliers."""

from __future__ import annotations

from math import inf, isinf, log

import numpy as np
import pytest

from hotloop import stats


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.706), (4, 2.776), (29, 2.045), (60, 2.0003), (0, inf)]
)
def test_quantiles_are_students(freedom: int, quantile: float) -> None:
    assert stats.t95(freedom) == pytest.approx(quantile, abs=1e-3)


@pytest.mark.parametrize("values", [[1.0, 2.0, 3.0, 4.0], np.arange(1.0, 5.0)], ids=["list", "array"])
def test_the_interval_of_a_mean(values: stats.Values) -> None:
    mean, low, high = stats.interval(values)
    assert mean == 2.5
    assert (high - mean, mean - low) == (pytest.approx(3.182 * 1.29099 / 2, abs=1e-3),) * 2


def test_one_value_has_no_interval() -> None:
    assert stats.interval([1.0]) == (1.0, -inf, inf)
    assert isinf(stats.half_width([]))


def test_a_ratio_comes_of_logarithms() -> None:
    ratio, low, high = stats.ratio_interval([log(2.0), log(2.0), log(2.0)])
    assert (ratio, low, high) == pytest.approx((2.0, 2.0, 2.0))


def test_groups_share_one_noise() -> None:
    deviation, freedom = stats.pooled_deviation([[1.0, 3.0], [10.0, 12.0], [7.0]])
    assert (deviation, freedom) == (pytest.approx(2**0.5), 2)


def test_a_robust_deviation_ignores_an_outlier() -> None:
    normal = np.random.default_rng(0).normal(size=2001)
    assert stats.robust_deviation([*normal, 1e9]) == pytest.approx(1.0, rel=0.1)
