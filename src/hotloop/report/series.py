"""What changes over a run, in at most a few hundred points: phases, throughput, step times, losses."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hotloop.compare.speed import samples_per_step
from hotloop.measure.stepping import block_means, steady_seconds
from hotloop.measure.steps import Floats, Steps
from hotloop.phases import COLUMN, PHASES
from hotloop.report.values import rounded
from hotloop.stats import half_width

#: A chart of 1000 pixels cannot show more, and the page stays small.
MAX_POINTS: Final = 300


def series(steps: Steps | None, offset_s: float = 0.0) -> dict[str, Any]:
    """Time series of one rank over equal bins of its wall time.

    ``edges_s`` are bin edges in seconds since the run started (``offset_s`` is when this process started).
    ``phases`` holds shares of each bin, ``steps_per_s`` and ``samples_per_s`` rates, ``step_s`` the median
    and longest step that ended in a bin. Empty where no step was seen.
    """
    if steps is None or steps.num_steps == 0:
        return {}
    end = max(float(steps.wall_s), float(steps.end_s[-1]), float(steps.span[1]))
    # Fewer bins than steps would be smooth to no purpose; far more than steps repeat themselves.
    edges = np.linspace(0.0, end, int(np.clip(4 * steps.num_steps, 24, MAX_POINTS)) + 1)
    width = float(edges[1])
    known = bool(np.isfinite(steps.samples).any())
    return {
        "edges_s": rounded(edges + offset_s, 6),
        "phases": _phases(steps, edges),
        "steps_per_s": rounded(_spread(steps, edges, np.ones(steps.num_steps)) / width),
        "samples_per_s": rounded(_spread(steps, edges, np.nan_to_num(steps.samples)) / width)
        if known
        else None,
        "step_s": _step_times(steps, edges),
        "loss": _loss(steps),
    }


def thinned(values: Floats) -> Floats:
    """Means of at most ``MAX_POINTS`` consecutive groups; NaN where a group holds nothing."""
    if len(values) <= MAX_POINTS:
        return np.asarray(values, float)
    known, begin = np.isfinite(values), np.linspace(0, len(values), MAX_POINTS, endpoint=False).astype(int)
    sums = np.add.reduceat(np.where(known, values, 0.0), begin)
    with np.errstate(invalid="ignore"):
        return np.asarray(sums / np.add.reduceat(known.astype(float), begin))


def _spread(steps: Steps, edges: Floats, values: npt.NDArray[Any]) -> Floats:
    """[bins] of a quantity that each step has: evenly over the step, nothing between steps."""
    times = np.maximum.accumulate(np.column_stack([steps.start_s, steps.end_s]).ravel())
    so_far = np.repeat(np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)]), 2)[1:-1]
    return np.asarray(np.diff(np.interp(edges, times, so_far)), float)


def _phases(steps: Steps, edges: Floats) -> dict[str, list[float | None]]:
    seconds = np.zeros((len(PHASES), len(edges) - 1))
    for name in PHASES:
        seconds[COLUMN[name]] = _spread(steps, edges, steps.phase(name))
    before = np.minimum(edges[1:], steps.span[0]) - edges[:-1]
    seconds[COLUMN["startup"]] += np.clip(before, 0.0, None)
    shares = np.clip(seconds / (edges[1] - edges[0]), 0.0, 1.0)
    return {name: rounded(shares[COLUMN[name]], 3) for name in PHASES if shares[COLUMN[name]].max() >= 0.0005}


def _step_times(steps: Steps, edges: Floats) -> dict[str, list[float | None]]:
    cuts = np.searchsorted(steps.end_s, edges[1:-1], side="right").tolist()
    median = np.full(len(edges) - 1, np.nan)
    longest = np.full(len(edges) - 1, np.nan)
    for at, (first, last) in enumerate(pairwise([0, *cuts, steps.num_steps])):
        if first < last:
            seconds = np.sort(steps.end_s[first:last] - steps.start_s[first:last])
            median[at], longest[at] = seconds[(len(seconds) - 1) // 2], seconds[-1]
    return {"median": rounded(median), "max": rounded(longest)}


def _loss(steps: Steps) -> dict[str, Any] | None:
    if len(steps.losses) < 2 or len(steps.losses) != len(steps.loss_steps):
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        values = thinned(np.where(np.isfinite(steps.losses), steps.losses, np.nan))
        at = thinned(steps.loss_steps.astype(float))
    return {
        "step": rounded(at, 6),
        "value": rounded(values),
        "num_non_finite": int((~np.isfinite(steps.losses)).sum()),
    }


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
    half = half_width(block_means(seconds))
    ci95 = [1 / (step_s + half), 1 / (step_s - half)] if half < step_s else None
    each = samples_per_step(ranks)
    samples = each / step_s if each else None
    return {
        "steps_per_s": 1 / step_s,
        "samples_per_s": samples,
        "ci95": ci95,
        "samples_ci95": [bound * each for bound in ci95] if each and ci95 else None,
        "overall_steps_per_s": lead.num_steps / lead.span_s if lead.span_s > 0 else 0.0,
    }
