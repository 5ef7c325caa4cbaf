"""What Python and autograd do on their own in the step, and viewers that are served in it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from hotloop.diagnose.evidence import Evidence, at, beyond, cause, reachable, rule
from hotloop.diagnose.facts import noted, set_at
from hotloop.diagnose.groups import asking, sampled_interval
from hotloop.diagnose.python_work import collecting_lines, collector_s, served_sockets, viewer_lines
from hotloop.findings import Finding, Place
from hotloop.measure.steps import LineCost
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


@rule("host/viewer-in-loop")
def viewer_in_loop(evidence: Evidence) -> Iterable[Finding]:
    """Socket polling in the step, together with the rendering that the same statement does."""
    steps = evidence.steps
    sockets = served_sockets(steps)
    lines = viewer_lines(steps)
    seconds = max(sum(site.seconds for site in sockets), sum(line.seconds for line in lines))
    if seconds <= 0 or not (sockets or lines):
        return
    where = asking(lines) or max(sockets, key=lambda site: site.seconds).place
    cost = beyond(steps, seconds, 0.0)
    samples = sum(line.num_samples for line in lines)
    calls = sum(site.count for site in sockets) / steps.num_steps
    numbers = [f"{duration(cost)} per step, {samples} samples"]
    if sockets:
        polled = sum(site.seconds for site in sockets)
        numbers.append(
            f"{calls:.1f} socket calls per step take {duration(polled / steps.num_steps)} themselves"
        )
    yield cause(
        evidence,
        message=(
            f"A socket is served inside the step{at(where)}: "
            f"{duration(cost)} of every step ({share(cost / steps.step_s)})."
        ),
        numbers=numbers,
        cost_s=cost,
        where=where,
        ci95=sampled_interval(cost, samples) if samples else None,
        data={"function": _served(lines, where)},
    )


def _served(lines: list[LineCost], where: Place | None) -> str | None:
    """The function that the statement calls, for ``throttle-viewer``; None where none was seen."""
    for line in sorted(lines, key=lambda line: -line.seconds):
        for inner, outer in pairwise((line.place, *line.callers)):
            if where is not None and outer.at_line == where.at_line:
                return reachable(inner, inner.function)
    return None
