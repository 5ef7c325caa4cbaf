"""Gradient accumulation was configured, and the optimizer stepped at another rate."""

from __future__ import annotations

from collections.abc import Iterable

from hotloop.diagnose.causes import cause
from hotloop.diagnose.configured import number, written_down
from hotloop.diagnose.evidence import Evidence
from hotloop.findings import Finding

ID = "config/accumulation-mismatch"


def check(evidence: Evidence) -> Iterable[Finding]:
    """Configured accumulation steps against backward passes per optimizer update."""
    steps = evidence.steps
    seen = steps.backwards_per_update
    note = written_down(evidence, "gradient_accumulation")
    wanted = number(note.get("value")) if note else None
    if wanted is None or wanted < 1 or steps.num_updates < evidence.limits.min_steps:
        return
    if abs(seen - round(seen)) > 0.1 or round(seen) == round(wanted):
        return
    if round(steps.num_steps / steps.num_updates) == round(wanted):
        return  # as many batches as configured, each with several backward passes (a loss each, chunks)
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
