"""Python's garbage collector pauses the training process."""

from __future__ import annotations

from collections.abc import Iterable

from hotloop.diagnose.causes import at, cause
from hotloop.diagnose.costs import enough, exposed_ratio
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.python_work import collecting_lines, collector_s
from hotloop.findings import Finding
from hotloop.units import duration, share

ID = "host/gc-pauses"


def check(evidence: Evidence) -> Iterable[Finding]:
    """Collections, of their own accord or called for in the loop, that take a visible part of the span."""
    steps = evidence.steps
    if not enough(evidence):
        return
    seconds = collector_s(evidence)
    if seconds <= 0:
        return
    called = collecting_lines(steps)
    where = called[0].place if called else None
    cost = seconds / steps.num_steps * exposed_ratio(steps, "other")
    yield cause(
        evidence,
        ID,
        message=(
            f"Python's garbage collector takes {share(seconds / steps.span_s)} of the training time"
            f"{f', called{at(where)}' if where else ''}."
        ),
        advice=(
            "Take gc.collect() out of the step, or call it every few hundred steps."
            if called
            else "Call gc.freeze() after set-up and gc.disable() with a gc.collect() every few hundred steps."
        ),
        numbers=[
            f"{steps.gc_count} collections, {duration(steps.gc_s / steps.gc_count)} each, "
            f"{duration(steps.gc_s)} in {duration(steps.span_s)}"
        ],
        cost_s=cost,
        where=where,
        remedies=("rarer-gc-collect", "gc-freeze") if called else ("gc-freeze",),
    )
