"""What changes over a run, in at most a few hundred points: phases, throughput, step times, losses."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from hotloop.measure.steps import Floats, Steps
from hotloop.phases import COLUMN, PHASES
from hotloop.report.values import rounded

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
    edges = np.linspace(0.0, end, _num_bins(steps.num_steps) + 1)
    width = float(edges[1])
    counts = np.arange(steps.num_steps + 1, dtype=float)
    samples = np.concatenate([[0.0], np.cumsum(np.nan_to_num(steps.samples))])
    known = bool(np.isfinite(steps.samples).any())
    return {
        "edges_s": rounded(edges + offset_s, 6),
        "phases": _phases(steps, edges),
        "steps_per_s": rounded(np.diff(_spread(steps, counts, edges)) / width),
        "samples_per_s": rounded(np.diff(_spread(steps, samples, edges)) / width) if known else None,
        "step_s": _step_times(steps, edges),
        "loss": _loss(steps),
    }


def thinned(values: Floats, num_points: int = MAX_POINTS) -> Floats:
    """Means of at most ``num_points`` consecutive groups; NaN where a group holds nothing."""
    if len(values) <= num_points:
        return np.asarray(values, float)
    groups = np.array_split(np.asarray(values, float), num_points)
    return np.array([np.nanmean(group) if np.isfinite(group).any() else np.nan for group in groups])


def _num_bins(num_steps: int) -> int:
    # Fewer bins than steps would be smooth to no purpose; far more than steps repeat themselves.
    return int(np.clip(4 * num_steps, 24, MAX_POINTS))


def _spread(steps: Steps, cumulative: Floats, at: Floats) -> Floats:
    """A quantity known at step ends, read at any time: even growth within a step, none between steps."""
    times = np.column_stack([steps.start_s, steps.end_s]).ravel()
    np.maximum.accumulate(times, out=times)
    # Only the values on both sides of each time are looked at.
    before = np.searchsorted(times, at, side="right") - 1
    near = np.unique(np.clip([before, before + 1], 0, len(times) - 1))
    return np.asarray(np.interp(at, times[near], cumulative[(near + 1) // 2]), float)


def _phases(steps: Steps, edges: Floats) -> dict[str, list[float | None]]:
    seconds = np.zeros((len(PHASES), len(edges) - 1))
    for name in PHASES:
        column = np.concatenate([[0.0], np.cumsum(steps.phase(name))])
        seconds[COLUMN[name]] = np.diff(_spread(steps, column, edges))
    seconds[COLUMN["startup"]] += _overlap(edges, 0.0, steps.span[0])
    _add_tail(steps, edges, seconds)
    shares = np.clip(seconds / (edges[1] - edges[0]), 0.0, 1.0)
    return {name: rounded(shares[COLUMN[name]], 3) for name in PHASES if shares[COLUMN[name]].max() >= 0.0005}


def _add_tail(steps: Steps, edges: Floats, seconds: Floats) -> None:
    """What came after the last step: whatever the process totals hold beyond the training span."""
    tail = _overlap(edges, steps.span[1], float(edges[-1]))
    extra = {
        name: max(0.0, steps.totals.get(name, 0.0) - steps.span_totals.get(name, 0.0))
        for name in PHASES
        if name != "startup"
    }
    total = sum(extra.values())
    if total <= 0:
        return
    for name, value in extra.items():
        seconds[COLUMN[name]] += tail * value / max(total, float(edges[-1]) - steps.span[1])


def _overlap(edges: Floats, start: float, end: float) -> Floats:
    return np.asarray(np.clip(np.minimum(edges[1:], end) - np.maximum(edges[:-1], start), 0.0, None), float)


def _step_times(steps: Steps, edges: Floats) -> dict[str, list[float | None]]:
    seconds = steps.end_s - steps.start_s
    where = np.clip(np.searchsorted(edges, steps.end_s) - 1, 0, len(edges) - 2)
    order = np.lexsort((seconds, where))
    filled, first, count = np.unique(where[order], return_index=True, return_counts=True)
    median = np.full(len(edges) - 1, np.nan)
    longest = np.full(len(edges) - 1, np.nan)
    median[filled] = seconds[order][first + (count - 1) // 2]
    longest[filled] = seconds[order][first + count - 1]
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
