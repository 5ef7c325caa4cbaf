"""A viewer is served from inside the training step."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from hotloop.diagnose.causes import at, beyond, cause, reachable
from hotloop.diagnose.discovery import rule
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.groups import asking, sampled_interval
from hotloop.diagnose.python_work import served_sockets, viewer_lines
from hotloop.findings import Finding, Place
from hotloop.measure.steps import LineCost
from hotloop.units import duration, share

ID = "host/viewer-in-loop"


@rule(ID)
def check(evidence: Evidence) -> Iterable[Finding]:
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
        ID,
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
