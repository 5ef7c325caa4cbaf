"""How a rule states a cause: seconds of the training span as cost per step, share and places in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

from hotloop.diagnose.evidence import Evidence
from hotloop.findings import Finding, Place, Severity
from hotloop.measure.steps import Steps


def cause(
    evidence: Evidence,
    finding_id: str,
    *,
    message: str,
    advice: str,
    numbers: Iterable[str],
    cost_s: float = 0.0,
    where: Place | None = None,
    ci95: tuple[float, float] | None = None,
    severity: Severity | None = None,
    remedies: tuple[str, ...] = (),
    data: Mapping[str, Any] | None = None,
) -> Finding:
    """A finding on the rank spoken about. ``cost_s`` is in seconds per step, not negative.

    A ``severity`` given here is kept as it is (``severity_fixed``): for causes whose cost is not time.
    """
    steps = evidence.steps
    cost = max(0.0, cost_s)
    facts = dict(data or {})
    if severity is not None:
        facts["severity_fixed"] = True
    return Finding(
        id=finding_id,
        message=message,
        advice=advice,
        evidence=tuple(numbers),
        cost_s_per_step=cost,
        cost_ci95=ci95,
        share=cost / steps.step_s if steps.step_s > 0 else 0.0,
        severity=severity or "info",
        where=where,
        remedies=remedies,
        rank=steps.rank if len(evidence.ranks) > 1 else None,
        data=facts,
    )


def measurable(evidence: Evidence) -> bool:
    """Whether the training span is long enough to speak of a cost per step."""
    steps, limits = evidence.steps, evidence.limits
    return steps.num_steps >= limits.min_steps and steps.span_s >= limits.min_span_s


def spot(place: Place | None) -> str:
    """A place in a sentence: ``train.py:41``, "" when unknown."""
    return f"{PurePath(place.file).name}:{place.line}" if place else ""


def at(place: Place | None) -> str:
    """`` at train.py:41``, "" when unknown."""
    return f" at {spot(place)}" if place else ""


def beyond(steps: Steps, seconds: float, free_ratio: float) -> float:
    """Seconds per step of ``seconds`` (over the span) beyond a share of the span that is fair to spend."""
    return max(0.0, seconds - free_ratio * steps.span_s) / max(1, steps.num_steps)


def scaled_interval(ci95: tuple[float, float], factor: float) -> tuple[float, float]:
    """An interval times a factor."""
    return (ci95[0] * factor, ci95[1] * factor)


def exposed_ratio(steps: Steps, phase: str) -> float:
    """Share of a host phase that the device did not hide: 1 without an accelerator or where nobody looked."""
    seconds = steps.span_totals.get(phase, 0.0)
    if steps.device is None or not steps.facts.get("accelerator") or seconds <= 0:
        return 1.0
    return min(1.0, steps.device.idle_s_by_phase.get(phase, 0.0) / seconds)
