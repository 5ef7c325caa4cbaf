"""Gradient accumulation was configured, and the optimizer stepped at another rate."""

from __future__ import annotations

from collections.abc import Iterable

from hotloop.diagnose.causes import cause
from hotloop.diagnose.configured import ignored, number
from hotloop.diagnose.evidence import Evidence
from hotloop.findings import Finding

ID = "config/accumulation-mismatch"

_NAMES = ("accumulation", "gradient_accumulation")


def check(evidence: Evidence) -> Iterable[Finding]:
    """Configured accumulation steps against backward passes per optimizer update."""
    steps = evidence.steps
    seen = steps.backwards_per_update
    setting = next((found for name in _NAMES if (found := ignored(evidence, name)) is not None), None)
    wanted = number(setting.configured) if setting else None
    if setting is None or wanted is None or wanted < 1 or steps.num_updates < evidence.limits.min_steps:
        return
    if abs(seen - round(seen)) > 0.1 or round(seen) == round(wanted):
        return
    yield cause(
        evidence,
        ID,
        message=(
            f"Gradient accumulation is configured as {wanted:g} but the optimizer updates after every "
            f"{round(seen)} backward passes: the effective batch is not the configured one."
        ),
        advice="Use the configured value in the loop, or correct the configuration.",
        numbers=[f"{steps.num_updates} updates in {steps.num_steps} steps, {seen:.2f} backward passes each"],
        severity="low",
        data={"configured": wanted, "in_effect": round(seen)},
    )
