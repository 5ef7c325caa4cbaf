"""Steady steps in blocks: neighbouring steps resemble each other, means of blocks hardly do."""

from __future__ import annotations

from typing import Final

import numpy as np

from hotloop.measure.steps import Floats, Steps

#: Student's t, two-sided 95 %, for 1 to 30 degrees of freedom.
_T95: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip

MAX_BLOCKS: Final = 20
LEAST_BLOCKS: Final = 4


def steady_seconds(steps: Steps) -> Floats:
    """Lengths of the steady steps in seconds; of all steps where none is steady."""
    seconds = steps.end_s - steps.start_s
    mask = np.asarray(steps.steady, bool)
    return seconds[mask] if mask.any() else seconds


def block_means(values: Floats) -> Floats:
    """[blocks] means of consecutive values; empty with too few of them."""
    if len(values) < 2 * LEAST_BLOCKS:
        return np.zeros(0)
    return np.array([block.mean() for block in np.array_split(values, min(MAX_BLOCKS, len(values) // 2))])


def t95(degrees: int) -> float:
    """Two-sided 95 % quantile of Student's t."""
    return _T95[degrees - 1] if degrees <= len(_T95) else 1.96 + 2.5 / degrees
