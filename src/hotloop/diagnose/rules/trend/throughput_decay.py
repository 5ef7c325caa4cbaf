"""``trend/throughput-decay``: steps get slower and slower as the run goes on."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop import units
from hotloop.diagnose import costs, says
from hotloop.diagnose.crowding import slowed_by_others
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.hotspots import quoted
from hotloop.diagnose.series import Drift, drift, grown_phase, hottest_line, inside
from hotloop.findings import Finding

ID = "trend/throughput-decay"
COSTED = True


def check(evidence: Evidence) -> Iterator[Finding]:
    """Speak of a monotone, significant growth of the steady step time, and name the phase that grew."""
    steps, limits = evidence.steps, evidence.limits
    if not costs.enough(evidence) or steps.span_s < limits.trend_span_s:
        return
    steady = inside(steps)[steps.steady]
    found = drift(steady)
    if found is None or not found.monotone or found.in_jumps:
        return  # at once slower, and then as fast all the time: the script does something else from then on
    if found.growth < limits.decay_ratio or found.z < limits.trend_z:
        return
    grown = grown_phase(steps, steps.steady)
    if grown.seconds < 0.5 * (found.last - found.first) or grown.rest_ratio > 0.5 * grown.ratio:
        return  # all phases alike: the machine got slower, not the script
    if (1.0 + found.growth) * slowed_by_others(evidence) < 1.0 + limits.decay_ratio:
        return
    phase = grown.phase
    line = hottest_line(steps, phase)
    cost = max(0.0, found.mean - found.first)
    yield Finding(
        id=ID,
        message=(
            f"Steps grow from {units.duration(found.first)} to {units.duration(found.last)} over the run "
            f"(+{units.share(found.growth)}), most of it in {phase}."
        ),
        advice=_advice(phase),
        evidence=(
            _slope(found),
            f"{phase} grew by {units.duration(grown.seconds)} per step from the first to the last quarter "
            "of the run",
            *((f"hottest line of {phase}: {says.at(line.place)}{quoted(line)}",) if line is not None else ()),
        ),
        cost_s_per_step=cost,
        cost_ci95=costs.interval(cost, steady),
        where=line.place if line is not None else steps.source_loop,
        data={"growth": found.growth, "phase": phase, "slope_s_per_step": found.slope},
    )


def _slope(found: Drift) -> str:
    return (
        f"Theil-Sen slope {units.duration(found.slope * 1000)} per 1,000 steps, Mann-Kendall z = "
        f"{found.z:.1f}, "
        "every quarter of the run no faster than the one before"
    )


def _advice(phase: str) -> str:
    if phase == "data_wait":
        return (
            "Look for what grows with every sample read: a list appended to and searched, an open file read "
            "from its "
            "start, a cache without a bound."
        )
    if phase in ("other", "logging"):
        return (
            "Look for a list, a figure or a log that grows with every step and is walked through each time."
        )
    return (
        "Look for state that grows with every step: losses kept with their graph (use loss.item() or "
        "detach()), "
        "hooks registered again and again, sequences that get longer."
    )
