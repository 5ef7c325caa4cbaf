"""Losses that are not finite or diverge, and a gradient scaler that keeps skipping."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hotloop.diagnose.evidence import Evidence, cause, rule
from hotloop.diagnose.facts import entries
from hotloop.diagnose.rollouts import steps_environment
from hotloop.findings import Finding
from hotloop.measure.steps import Floats
from hotloop.units import share


@rule("numerics/non-finite-loss", short_runs=True)
def non_finite_loss(evidence: Evidence) -> Iterable[Finding]:
    """A NaN or infinite loss among those seen; under a gradient scaler single ones are skipped by design."""
    steps = evidence.steps
    bad = ~np.isfinite(steps.losses)
    count = int(bad.sum())
    if count == 0 or (steps.scaler_steps > 0 and count <= steps.scaler_skips):
        return
    first = int(np.argmax(bad))
    step = int(steps.loss_steps[first]) if first < len(steps.loss_steps) else first
    kind = "NaN" if np.isnan(steps.losses[first]) else "infinite"
    after = int(bad[first:].sum())
    stays = after == len(bad) - first and after > 1
    yield cause(
        evidence,
        message=f"The loss is {kind} at step {step}{' and stays so' if stays else ''}: it trains on nothing.",
        numbers=[
            f"{count} of {len(bad)} losses seen are not finite, the first at step {step}",
            "these steps are wasted",
        ],
        cost_s=steps.step_s * count / len(bad),
        severity="high",
        where=steps.source_loop,
        data={"first_step": step, "count": count},
    )


@rule("numerics/loss-diverged", short_runs=True)
def loss_diverged(evidence: Evidence) -> Iterable[Finding]:
    """The median of the last tenth against the best tenth, where the end is the worst and still rising."""
    steps, limits = evidence.steps, evidence.limits
    losses = steps.losses
    if len(losses) < limits.diverged_min_losses or not np.isfinite(losses).all() or (losses <= 0).any():
        return
    if len(entries(steps, "optimizers")) > 1 or steps.scaler_steps > 0:
        return  # rivals' losses rise by design; scaled losses follow the scale
    medians = np.array([np.median(part) for part in np.array_split(losses, 10)])
    best = int(np.argmin(medians))
    if best == 0 and steps.train_loader() is None:
        return  # rising from the start without a data set: value losses of reinforcement learning do
    ratio = float(medians[-1] / medians[best])
    if ratio < limits.diverged_ratio or not _rising(medians, best) or _interleaved(losses, best):
        return
    if steps_environment(evidence):
        return  # a value's target is the learner's own answer and grows with what it learns to reach
    yield cause(
        evidence,
        message=f"The loss diverged: it ends {ratio:.1f} times above its best stretch and is still rising.",
        numbers=[
            f"median loss {medians[best]:.4g} in its best tenth ({best + 1} of 10), {medians[-1]:.4g} last",
            f"{len(losses)} losses seen; the steps after the best stretch are wasted",
        ],
        cost_s=steps.step_s * (9 - best) / 10,
        severity="high",
        where=steps.source_loop,
        data={"best": float(medians[best]), "last": float(medians[-1])},
    )


def _rising(medians: Floats, best: int) -> bool:
    """Whether the stretch after the best tenth goes up to its end."""
    after = medians[best:]
    return len(after) >= 3 and bool(medians[-1] >= after[:-1].max()) and bool(medians[-1] >= medians.max())


def _interleaved(losses: Floats, best: int) -> bool:
    """Whether several losses are mixed (a generator's and a critic's): then levels say nothing.

    Mixed ones jump from one to the next as far as they differ at all; one that rises goes there step by step.
    """
    tenth = np.log(np.maximum(np.array_split(losses, 10)[best], 1e-12))
    low, high = np.quantile(tenth, [0.1, 0.9])
    return bool(high - low > np.log(10) and np.median(np.abs(np.diff(tenth))) > 0.3 * (high - low))


@rule("numerics/scaler-skipping", short_runs=True)
def scaler_skipping(evidence: Evidence) -> Iterable[Finding]:
    """Skipped steps beyond those with which a scaler finds its first scale."""
    steps, limits = evidence.steps, evidence.limits
    later = steps.scaler_steps - limits.scaler_warmup_steps
    # Halving from 65536 to 1 takes 16 skips: so many may belong to the warm-up.
    skips = steps.scaler_skips - min(16, limits.scaler_warmup_steps)
    if later <= 0 or skips < limits.scaler_skip_ratio * later or skips < 3:
        return
    yield cause(
        evidence,
        message=(
            f"The gradient scaler skipped {steps.scaler_skips} of {steps.scaler_steps} optimizer steps: "
            "gradients overflow again and again."
        ),
        numbers=[f"{share(skips / later)} of the steps after warm-up were skipped; one in 2000 is ordinary"],
        cost_s=steps.step_s * steps.scaler_skips / steps.scaler_steps,
        severity="medium",
        where=steps.source_loop,
        data={"skips": steps.scaler_skips, "steps": steps.scaler_steps},
    )
