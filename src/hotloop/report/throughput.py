"""How fast a run was in its steady state, with an interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hotloop.compare.speed import samples_per_step
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
    each = samples_per_step(ranks)
    samples = each / step_s if each else None
    return {
        "steps_per_s": 1 / step_s,
        "samples_per_s": samples,
        "ci95": ci95,
        "samples_ci95": [bound * each for bound in ci95] if each and ci95 else None,
        "overall_steps_per_s": lead.num_steps / lead.span_s if lead.span_s > 0 else 0.0,
    }
