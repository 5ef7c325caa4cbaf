"""Half the batch makes more samples a second, or as many in a run that fills the memory."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt

import numpy as np

from hotloop.diagnose.costs import THREADED_PHASES
from hotloop.diagnose.evidence import Evidence, cause, rule
from hotloop.diagnose.facts import batch_shapes
from hotloop.diagnose.memory_use import run_ratio
from hotloop.findings import Finding
from hotloop.measure.steps import Floats
from hotloop.units import duration


@rule("device/batch-past-the-knee")
def check(evidence: Evidence) -> Iterable[Finding]:
    """The last batch of each epoch beside the full ones: the one experiment with sizes that a run makes.

    Silent on an accelerator, where a host clock does not show what one small step took.
    """
    steps, limits = evidence.steps, evidence.limits
    loader = steps.train_loader()
    batch = loader.settings.get("batch_size") if loader is not None else None
    if evidence.on_accelerator or loader is None or not isinstance(batch, int):
        return
    computing = np.sum([steps.phase(phase) for phase in THREADED_PHASES], axis=0)
    if computing.sum() < limits.computing_ratio * steps.span_s:
        return
    shapes = batch_shapes(evidence, loader)
    if len(shapes) < 2 or len(set(shapes)) > 1:
        return  # padded ones get cheaper as well
    full = computing[steps.steady & (steps.samples == batch)]
    last = computing[steps.steady & (steps.samples < batch)]
    sizes = np.unique(steps.samples[steps.steady & (steps.samples < batch)])
    if len(sizes) != 1 or sizes[0] > batch / 2 or min(len(full), len(last)) < limits.min_steps:
        return
    gain, high = _doubling(full, last, float(sizes[0]) / batch)
    half = batch // 2
    slower = high < 1 / limits.knee_ratio
    full_memory = (run_ratio(evidence) or 0.0) >= limits.much_memory_ratio
    # As many samples with half the batch are worth a change only where memory is what runs out.
    if half < limits.small_batch or not (slower or (high <= limits.knee_ratio and full_memory)):
        return
    makes = f"{1 / gain:.2f} times the" if slower else "as many"
    yield cause(
        evidence,
        message=f"A batch of {batch} is past the knee: {half} would make {makes} samples a second.",
        advice=(
            f"With batch_size={half} each step takes half the memory and time, and there are twice the "
            "updates; it changes the training. To measure it: hotloop tune --sweep batch-size"
        ),
        numbers=[
            f"computing takes {duration(float(np.median(full)))} for {batch} samples and "
            f"{duration(float(np.median(last)))} for the {sizes[0]:.0f} of {len(last)} last batches",
            f"from {half} to {batch} samples: {gain:.2f} times the samples a second, at most {high:.2f}",
        ],
        severity="info",
        where=loader.where,
        data={"effect": "semantic", "batch_size": half},
    )


def _doubling(full: Floats, last: Floats, size: float) -> tuple[float, float]:
    """Samples a second at the full size over those at half of it, and the upper end of its 95 % interval.

    What half a batch takes lies between the two that were seen: a step takes so much, and so much a sample.
    """
    share = (0.5 - size) / (1 - size)
    ratio = float(np.median(last) / np.median(full))
    error = sqrt(_error(full) ** 2 + _error(last) ** 2)
    gain = 2 * (share + (1 - share) * ratio)
    return gain, gain + 1.96 * 2 * (1 - share) * ratio * error


def _error(seconds: Floats) -> float:
    """Standard error of a median, as a part of it; the deviation from quartiles, as few steps are cut off."""
    low, middle, high = np.quantile(seconds, [0.25, 0.5, 0.75])
    return float(1.2533 * (high - low) / 1.349 / sqrt(len(seconds)) / middle)
