"""Autograd's anomaly detection is on in training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hotloop.diagnose.causes import at, cause
from hotloop.diagnose.costs import enough
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.facts import flag, set_at
from hotloop.findings import Finding, Place
from hotloop.units import duration, share

ID = "host/anomaly-detection"


def check(evidence: Evidence) -> Iterable[Finding]:
    """Stacks recorded in forward, whose time is exact: what the checks in backward take comes on top."""
    steps = evidence.steps
    noted = steps.facts.get("anomaly")
    if not isinstance(noted, Mapping) or not enough(evidence):
        return
    cost = float(noted.get("seconds") or 0.0) / steps.num_steps
    if cost < evidence.limits.worth_fixing_ratio * steps.step_s:
        return
    where, is_off = _set_last(evidence)
    stands, takes = ("was on", "took") if is_off else (f"is on{at(where)}", "takes")
    yield cause(
        evidence,
        ID,
        message=(
            f"Anomaly detection {stands}: recording a stack for every operation {takes} "
            f"{duration(cost)} of {'a step on average' if is_off else 'every step'} "
            f"({share(cost / steps.step_s)}), and in backward every "
            f"gradient {'was' if is_off else 'is'} searched for NaN."
        ),
        advice="Turn it on only while looking for a NaN.",
        numbers=[
            f"{float(noted.get('stacks') or 0) / steps.num_steps:.0f} stacks a step, {duration(cost)}",
            "the search in backward is not in the cost",
        ],
        cost_s=cost,
        where=where,
    )


def _set_last(evidence: Evidence) -> tuple[Place | None, bool]:
    """Where the script turned it on, if that was the last it did to it, and whether it was turned off."""
    where = set_at(evidence.steps, "grad_anomaly", True)
    turned_off = set_at(evidence.steps, "grad_anomaly", False) is not None
    return where, turned_off and not flag(evidence.steps, "grad_anomaly")
