"""How much a finding matters: its share of the run's time, and the severity that follows from it."""

from __future__ import annotations

from dataclasses import replace

from hotloop.diagnose.limits import Limits
from hotloop.findings import Finding, Severity

#: From worst to least.
ORDER: tuple[Severity, ...] = ("high", "medium", "low", "info")


def severity_of(share: float, limits: Limits) -> Severity:
    """The severity of a cause that takes this share of the training span."""
    if share >= limits.high_ratio:
        return "high"
    if share >= limits.medium_ratio:
        return "medium"
    if share >= limits.worth_fixing_ratio:
        return "low"
    return "info"


def graded(finding: Finding, step_s: float, limits: Limits) -> Finding:
    """The finding with its share of a step of ``step_s`` seconds and its severity.

    A finding without a cost, or with ``data["severity_fixed"]``, keeps the severity its rule gave: there the
    cost is not the point (a loss that is NaN, memory that runs out).
    """
    cost = max(0.0, min(finding.cost_s_per_step, step_s))
    share = cost / step_s if step_s > 0 else 0.0
    fixed = bool(finding.data.get("severity_fixed")) or cost == 0
    severity = finding.severity if fixed else severity_of(share, limits)
    return replace(finding, cost_s_per_step=cost, share=share, severity=severity)


def is_noise(finding: Finding, limits: Limits) -> bool:
    """Whether a costed finding is too small to be said at all."""
    costed = finding.cost_s_per_step > 0 and not finding.data.get("severity_fixed")
    return costed and finding.share < limits.mention_ratio
