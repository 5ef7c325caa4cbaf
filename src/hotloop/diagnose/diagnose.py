"""Runs every rule over one run's evidence and puts what they found in the order a person should act on it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from hotloop.diagnose.argument_names import in_framework_names
from hotloop.diagnose.discovery import RuleEntry, rules
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.overlaps import resolved
from hotloop.diagnose.severity import ORDER, graded, is_noise
from hotloop.findings import Finding

_log = logging.getLogger("hotloop.diagnose")


def diagnose(
    evidence: Evidence,
    warn: Callable[[str], None] | None = None,
    entries: Sequence[RuleEntry] | None = None,
) -> tuple[Finding, ...]:
    """Every finding of the run, by cost, information last; of equal costs the line comes before the setting.

    A rule that fails is told to ``warn`` in words (default: the log) and does not stop the others.
    ``entries`` are the rules to run, default all.
    """
    entries = rules() if entries is None else entries
    found: list[Finding] = []
    for rule in entries:
        found.extend(_run(rule, evidence, warn or _log.warning))
    limits = evidence.limits
    costed = [graded(finding, evidence.steps.step_s, limits) for finding in found]
    kept = resolved([finding for finding in costed if not is_noise(finding, limits)])
    told = [in_framework_names(finding, evidence.steps) for finding in kept]
    return tuple(sorted(by_cost(told, limits.tie_ratio), key=lambda finding: finding.severity == "info"))


def by_cost(findings: Iterable[Finding], tie_ratio: float) -> list[Finding]:
    """Findings by falling cost. Of those within ``tie_ratio`` of the largest of their group, parts of making
    a batch come first, by size: they name the line that a setting would only hide.

    Costs that tie are not told apart by the data, so the reordered ones are lowered to the one before them:
    the list stays sorted by cost.
    """
    rest = sorted(findings, key=lambda f: (-f.cost_s_per_step, ORDER.index(f.severity), f.id))
    ordered: list[Finding] = []
    while rest:
        top = rest[0].cost_s_per_step
        tied = [f for f in rest if f.cost_s_per_step >= top * (1 - tie_ratio) and top > 0] or rest[:1]
        rest = rest[len(tied) :]
        ordered += _lowered(sorted(tied, key=_of_making, reverse=True))
    return ordered


def _of_making(finding: Finding) -> float:
    """The share of making a batch that goes: where other limits cap what it saves, more of it is surer."""
    return float(finding.data.get("share_of_make", 0.0))


def _lowered(tied: Sequence[Finding]) -> list[Finding]:
    lowered: list[Finding] = []
    for finding in tied:
        above = lowered[-1].cost_s_per_step if lowered else finding.cost_s_per_step
        if finding.cost_s_per_step > above > 0:
            finding = replace(
                finding, cost_s_per_step=above, share=finding.share * above / finding.cost_s_per_step
            )
        lowered.append(finding)
    return lowered


def _run(rule: RuleEntry, evidence: Evidence, warn: Callable[[str], None]) -> list[Finding]:
    try:
        return [f for f in rule(evidence) if f.cost_s_per_step > 0 or not rule.costed]
    except Exception as error:  # a broken rule must not hide what the others found
        place = _last_line(error)
        warn(f"the rule {rule.id} failed and was left out ({type(error).__name__}: {error}, {place})")
        return []


def _last_line(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else "no traceback"
