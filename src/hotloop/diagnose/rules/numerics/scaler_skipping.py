"""The gradient scaler keeps skipping optimizer steps."""

from __future__ import annotations

from collections.abc import Iterable

from hotloop.diagnose.causes import cause
from hotloop.diagnose.evidence import Evidence
from hotloop.findings import Finding
from hotloop.units import share

ID = "numerics/scaler-skipping"


def check(evidence: Evidence) -> Iterable[Finding]:
    """Skipped steps beyond those with which a scaler finds its first scale."""
    steps, limits = evidence.steps, evidence.limits
    later = steps.scaler_steps - limits.scaler_warmup_steps
    # Halving from 65536 to 1 takes 16 skips: so many may belong to the warm-up.
    skips = steps.scaler_skips - min(16, limits.scaler_warmup_steps)
    if later <= 0 or skips < limits.scaler_skip_ratio * later or skips < 3:
        return
    yield cause(
        evidence,
        ID,
        message=(
            f"The gradient scaler skipped {steps.scaler_skips} of {steps.scaler_steps} optimizer steps: "
            "gradients overflow again and again."
        ),
        advice="Use bfloat16 where the device has it, lower the learning rate, or clip gradients.",
        numbers=[f"{share(skips / later)} of the steps after warm-up were skipped; one in 2000 is ordinary"],
        cost_s=steps.step_s * steps.scaler_skips / steps.scaler_steps,
        severity="medium",
        where=steps.source_loop,
        data={"skips": steps.scaler_skips, "steps": steps.scaler_steps},
    )
