"""How fast a run was in its steady state, with an interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from hotloop.measure.steps import Floats, Steps

#: Student's t, two-sided 95 %, for 1 to 30 degrees of freedom.
_T95: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip

#: Neighbouring steps resemble each other; means of blocks hardly do.
_MAX_BLOCKS: Final = 20
_MIN_BLOCKS: Final = 4


def throughput(lead: Steps | None, ranks: Sequence[Steps]) -> dict[str, Any]:
    """Steady steps and samples per second, each with its 95 % interval.

    ``ci95`` belongs to ``steps_per_s``, ``samples_ci95`` to ``samples_per_s``. Samples are summed over all
    ranks. ``overall_steps_per_s`` is over the whole training span.
    """
    empty = {
        "steps_per_s": 0.0,
        "samples_per_s": None,
        "ci95": None,
        "samples_ci95": None,
        "overall_steps_per_s": 0.0,
    }
    if lead is None or lead.num_steps == 0:
        return empty
    seconds = steady_seconds(lead)
    step_s = float(seconds.mean())
    if step_s <= 0:
        return empty
    low, high = _interval(seconds)
    ci95 = [1 / high, 1 / low] if low > 0 and math.isfinite(high) else None
    samples = _samples_per_s(ranks)
    known = samples is not None and ci95 is not None
    return {
        "steps_per_s": 1 / step_s,
        "samples_per_s": samples,
        "ci95": ci95,
        "samples_ci95": [bound * step_s * samples for bound in ci95] if known and samples and ci95 else None,
        "overall_steps_per_s": lead.num_steps / lead.span_s if lead.span_s > 0 else 0.0,
    }


def steady_seconds(steps: Steps) -> Floats:
    """Lengths of the steady steps in seconds; of all steps where none is steady."""
    seconds = steps.end_s - steps.start_s
    mask = np.asarray(steps.steady, bool)
    return seconds[mask] if mask.any() else seconds


def _samples_per_s(ranks: Sequence[Steps]) -> float | None:
    total = 0.0
    for steps in ranks:
        if steps.num_steps == 0:
            continue
        seconds = steps.end_s - steps.start_s
        use = np.asarray(steps.steady, bool)
        use = (use if use.any() else np.ones_like(use)) & np.isfinite(steps.samples)
        if not use.any() or seconds[use].sum() <= 0:
            return None
        total += float(steps.samples[use].sum() / seconds[use].sum())
    return total or None


def _interval(seconds: Floats) -> tuple[float, float]:
    """95 % t interval of the mean step over means of consecutive blocks; (nan, nan) with too few steps."""
    if len(seconds) < 2 * _MIN_BLOCKS:
        return math.nan, math.nan
    blocks = np.array_split(seconds, min(_MAX_BLOCKS, len(seconds) // 2))
    means = np.array([block.mean() for block in blocks])
    half = t95(len(means) - 1) * float(means.std(ddof=1)) / math.sqrt(len(means))
    centre = float(seconds.mean())
    return centre - half, centre + half


def t95(degrees: int) -> float:
    """Two-sided 95 % quantile of Student's t."""
    return _T95[degrees - 1] if degrees <= len(_T95) else 1.96 + 2.5 / degrees
