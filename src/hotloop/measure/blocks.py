"""Steady steps in blocks: neighbouring steps resemble each other, means of blocks hardly do."""

from __future__ import annotations

from typing import Final

import numpy as np

from hotloop.measure.steps import Floats, Steps

MAX_BLOCKS: Final = 20
LEAST_BLOCKS: Final = 4


def steady_seconds(steps: Steps) -> Floats:
    """Lengths of the steady steps in seconds; of all steps where none is steady."""
    seconds = steps.end_s - steps.start_s
    mask = np.asarray(steps.steady, bool)
    return seconds[mask] if mask.any() else seconds


def block_means(values: Floats, least: int = LEAST_BLOCKS) -> Floats:
    """[blocks] means of consecutive values; empty with fewer values than ``least`` blocks of two need."""
    if len(values) < 2 * least:
        return np.zeros(0)
    return np.array([block.mean() for block in np.array_split(values, min(MAX_BLOCKS, len(values) // 2))])
