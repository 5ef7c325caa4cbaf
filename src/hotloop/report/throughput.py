"""How fast a run was in its steady state, with an interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hotloop.measure.blocks import block_means, steady_seconds
from hotloop.measure.steps import Steps
from hotloop.stats import half_width


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
    samples = _samples_per_s(ranks)
    known = samples is not None and ci95 is not None
    return {
        "steps_per_s": 1 / step_s,
        "samples_per_s": samples,
        "ci95": ci95,
        "samples_ci95": [bound * step_s * samples for bound in ci95] if known and samples and ci95 else None,
        "overall_steps_per_s": lead.num_steps / lead.span_s if lead.span_s > 0 else 0.0,
    }


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
