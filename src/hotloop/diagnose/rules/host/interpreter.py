"""What Python and autograd do on their own in the step: garbage collection, anomaly detection."""

from __future__ import annotations

from collections.abc import Iterable

from hotloop.diagnose.causes import at, cause
from hotloop.diagnose.discovery import rule
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.facts import noted, set_at
from hotloop.diagnose.python_work import collecting_lines, collector_s
from hotloop.findings import Finding
from hotloop.units import duration, share


@rule("host/gc-pauses")
def gc_pauses(evidence: Evidence) -> Iterable[Finding]:
    """Collections, of their own accord or called for in the loop, that take a visible part of the span."""
    steps = evidence.steps
    seconds = collector_s(evidence)
    if seconds <= 0:
        return
    called = collecting_lines(steps)
    where = called[0].place if called else None
    cost = seconds / steps.num_steps * steps.exposed("other")
    yield cause(
        evidence,
        "host/gc-pauses",
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


@rule("host/anomaly-detection")
def anomaly_detection(evidence: Evidence) -> Iterable[Finding]:
    """Stacks recorded in forward, whose time is exact: what the checks in backward take comes on top."""
    steps = evidence.steps
    recorded = noted(steps, "anomaly")
    cost = float(recorded.get("seconds") or 0.0) / steps.num_steps
    if cost < evidence.limits.worth_fixing_ratio * steps.step_s:
        return
    where = set_at(steps, "grad_anomaly", True)
    yield cause(
        evidence,
        "host/anomaly-detection",
        message=(
            f"Anomaly detection is on{at(where)}: recording a stack for every operation takes "
            f"{duration(cost)} of every step ({share(cost / steps.step_s)}), and in backward every gradient "
            "is searched for NaN."
        ),
        numbers=[
            f"{float(recorded.get('stacks') or 0) / steps.num_steps:.0f} stacks a step, {duration(cost)}",
            "the search in backward is not in the cost",
        ],
        cost_s=cost,
        where=where,
    )
