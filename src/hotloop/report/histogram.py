"""How long steps take, as counts; steps that hold an evaluation or a checkpoint are counted apart."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from hotloop.measure.steps import Steps
from hotloop.report.values import rounded

#: Fewer steps have no shape.
_LEAST_STEPS: Final = 20
_MOST_BINS: Final = 48
#: Lengths that are so many times as long as others need a logarithmic axis.
_WIDE: Final = 5.0


def histogram(steps: Steps | None) -> dict[str, Any] | None:
    """Bin edges in seconds, and counts of a bin as ``steps``, ``evaluation`` and ``checkpoint`` (a step with
    both is one with an evaluation). ``log``: the edges grow by a ratio. None of few steps.
    """
    if steps is None or steps.num_steps < _LEAST_STEPS:
        return None
    seconds = np.maximum(steps.end_s - steps.start_s, 1e-9)
    low, high = float(seconds.min()), float(seconds.max())
    bins = int(np.clip(2 * np.sqrt(len(seconds)), 12, _MOST_BINS))
    log = high > _WIDE * low
    edges = np.geomspace(low, high, bins + 1) if log else np.linspace(low, max(high, low * 1.01), bins + 1)
    edges[0], edges[-1] = min(edges[0], low), max(edges[-1], high)  # rounding must lose no step
    evaluates = steps.phase("evaluation") > 0
    writes = (steps.phase("checkpoint") > 0) & ~evaluates
    counts = {"steps": ~evaluates & ~writes, "evaluation": evaluates, "checkpoint": writes}
    return {
        "edges_s": rounded(edges, 6),
        "log": log,
        **{name: np.histogram(seconds[mask], edges)[0].tolist() for name, mask in counts.items()},
    }
