"""Python's garbage collector pauses the training process."""

from __future__ import annotations

from collections.abc import Iterable

from hotloop.diagnose.causes import beyond, cause, measurable
from hotloop.diagnose.evidence import Evidence
from hotloop.findings import Finding
from hotloop.units import duration, share

ID = "host/gc-pauses"


def check(evidence: Evidence) -> Iterable[Finding]:
    """Collections that take more than a few percent of the span."""
    steps = evidence.steps
    if (
        not measurable(evidence)
        or steps.gc_s < evidence.limits.gc_ratio * steps.span_s
        or steps.gc_count == 0
    ):
        return
    cost = beyond(steps, steps.gc_s, 0.0)
    yield cause(
        evidence,
        ID,
        message=f"Python's garbage collector takes {share(steps.gc_s / steps.span_s)} of the training time.",
        advice="Call gc.freeze() after set-up and gc.disable() with a gc.collect() every few hundred steps.",
        numbers=[
            f"{steps.gc_count} collections, {duration(steps.gc_s / steps.gc_count)} each, "
            f"{duration(steps.gc_s)} in {duration(steps.span_s)}"
        ],
        cost_s=cost,
        remedies=("gc-freeze",),
    )
