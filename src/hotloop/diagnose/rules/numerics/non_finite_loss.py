"""The loss became NaN or infinite."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hotloop.diagnose.causes import cause
from hotloop.diagnose.evidence import Evidence
from hotloop.findings import Finding

ID = "numerics/non-finite-loss"


def check(evidence: Evidence) -> Iterable[Finding]:
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
        ID,
        message=f"The loss is {kind} at step {step}{' and stays so' if stays else ''}: it trains on nothing.",
        advice="Stop; look at the batch and learning rate of that step (torch.autograd.set_detect_anomaly).",
        numbers=[
            f"{count} of {len(bad)} losses seen are not finite, the first at step {step}",
            "these steps are wasted",
        ],
        cost_s=steps.step_s * count / len(bad),
        severity="high",
        where=steps.source_loop,
        data={"first_step": step, "count": count},
    )
