"""Runs every rule over one run's evidence and puts what they found in the order a person should act on it."""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hotloop.diagnose.evidence import Evidence, RuleEntry, rules
from hotloop.diagnose.limits import Limits
from hotloop.diagnose.series import inside
from hotloop.findings import SEVERITIES, Finding, Severity
from hotloop.measure.steps import Steps
from hotloop.source.written import spelled_by
from hotloop.stats import half_width
from hotloop.torch_facts import LOADER_DEFAULTS
from hotloop.units import duration, share


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """``loser`` is dropped where ``winner`` was found; with ``same_place`` only at the same line, with a
    ``share`` only where the winner has that much of its cost.
    """

    loser: str
    winner: str
    same_place: bool = False
    share: float = 0.0


OVERLAPS: tuple[Overlap, ...] = (
    # The special case says what to do, the general one only where.
    Overlap(loser="input/slow-sample", winner="input/per-sample-conversion", same_place=True),
    Overlap(loser="input/slow-sample", winner="input/slow-storage", same_place=True),
    Overlap(loser="input/slow-sample", winner="input/slow-collate", same_place=True),
    Overlap(loser="input/slow-sample", winner="input/straggling-samples", same_place=True),
    Overlap(loser="input/slow-sample", winner="input/cold-start", same_place=True),
    Overlap(loser="host/python-in-step", winner="host/recomputed-targets", same_place=True),
    Overlap(loser="host/python-in-step", winner="host/viewer-in-loop", same_place=True),
    Overlap(loser="host/python-in-step", winner="input/iterator-per-step", same_place=True),
    Overlap(loser="trend/step-outliers", winner="host/python-in-step", same_place=True),
    # What is done in a few steps only is made less often, not faster.
    Overlap(loser="input/slow-sample", winner="trend/step-outliers", same_place=True, share=0.9),
    # Workers that are started again every epoch look like a cold start and like too many of them.
    Overlap(loser="input/cold-start", winner="input/respawned-workers"),
    # Advice that would contradict: more workers where they cost more than they bring.
    Overlap(loser="input/too-few-workers", winner="input/worker-transport"),
    Overlap(loser="input/shallow-prefetch", winner="input/worker-transport"),
    Overlap(loser="input/too-many-workers", winner="input/worker-transport"),
    # What computes in float64 does not compute in float32.
    Overlap(loser="device/amp-off", winner="device/float64"),
    Overlap(loser="device/tf32-off", winner="device/float64"),
    # A growing cache is a named reason for growth.
    Overlap(loser="memory/worker-copies", winner="memory/unbounded-cache"),
    Overlap(loser="memory/host-growth", winner="memory/unbounded-cache"),
    # What happened says more than what might.
    Overlap(loser="memory/near-limit", winner="memory/out-of-memory"),
    Overlap(loser="memory/shared-memory-small", winner="memory/out-of-memory"),
    Overlap(loser="input/cache-thrash", winner="memory/page-cache-thrash"),
)


def weighed(
    findings: Iterable[Finding], step_s: float, limits: Limits, *, sure: bool = True
) -> list[Finding]:
    """Those worth saying of a run with steps of ``step_s`` seconds, by severity, then cost, for not all have
    a price; of equal costs the line comes before the setting, and of what is noted first what may give
    something. Where times are not ``sure`` (others used the cores), what a cause costs at least decides how
    severe it is.
    """
    costed = [graded(finding, step_s, limits, sure=sure) for finding in findings]
    kept = resolved([finding for finding in costed if not is_noise(finding, limits)])
    ordered = [graded(finding, step_s, limits, sure=sure) for finding in by_cost(kept, limits.tie_ratio)]

    def rank(one: Finding) -> tuple[int, bool]:
        may_give = one.data.get("unpriced") or one.share >= limits.worth_fixing_ratio
        return SEVERITIES.index(one.severity), one.severity == "info" and not may_give

    return sorted(ordered, key=rank)


def severity_of(share: float, limits: Limits) -> Severity:
    """The severity of a cause that takes this share of the training span."""
    if share >= limits.high_ratio:
        return "high"
    if share >= limits.medium_ratio:
        return "medium"
    if share >= limits.worth_fixing_ratio:
        return "low"
    return "info"


def graded(finding: Finding, step_s: float, limits: Limits, *, sure: bool = True) -> Finding:
    """The finding with its share of a step of ``step_s`` seconds and its severity.

    A finding without a cost, or with ``data["severity_fixed"]``, keeps the severity its rule gave: there the
    cost is not the point (a loss that is NaN, memory that runs out).
    """
    cost = max(0.0, min(finding.cost_s_per_step, step_s))
    share = cost / step_s if step_s > 0 else 0.0
    fixed = bool(finding.data.get("severity_fixed")) or cost == 0
    least = share if sure or finding.cost_ci95 is None or not step_s else finding.cost_ci95[0] / step_s
    severity = finding.severity if fixed else severity_of(min(share, least), limits)
    return replace(finding, cost_s_per_step=cost, share=share, severity=severity)


def is_noise(finding: Finding, limits: Limits) -> bool:
    """Whether a costed finding is too small to be said at all."""
    matters = finding.data.get("severity_fixed") and finding.severity != "info"
    return finding.cost_s_per_step > 0 and not matters and finding.share < limits.mention_ratio


def resolved(findings: Sequence[Finding]) -> list[Finding]:
    """The findings without those that give way to another one."""
    return [finding for finding in findings if not any(_loses(finding, other) for other in findings)]


def _loses(finding: Finding, other: Finding) -> bool:
    a, b = finding.where, other.where
    return any(
        overlap.loser == finding.id
        and overlap.winner == other.id
        and (not overlap.same_place or bool(a and b and a.at_line == b.at_line))
        and (other.cost_s_per_step or 0.0) >= overlap.share * (finding.cost_s_per_step or 0.0)
        for overlap in OVERLAPS
    )


def by_cost(findings: Iterable[Finding], tie_ratio: float) -> list[Finding]:
    """Findings by falling cost. Of those within ``tie_ratio`` of the largest of their group, parts of making
    a batch come first, by size: they name the line that a setting would only hide.

    Costs that tie are not told apart by the data, so the reordered ones are lowered to the one before them:
    the list stays sorted by cost.
    """
    rest = sorted(findings, key=lambda f: (-f.cost_s_per_step, SEVERITIES.index(f.severity), f.id))
    ordered: list[Finding] = []
    while rest:
        top = rest[0].cost_s_per_step
        tied = [f for f in rest if f.cost_s_per_step >= top * (1 - tie_ratio) and top > 0] or rest[:1]
        rest = rest[len(tied) :]
        # Where other limits cap what a part of making a batch saves, a larger one is surer.
        ordered += _lowered(sorted(tied, key=lambda one: -one.data.get("share_of_make", 0.0)))
    return ordered


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


_log = logging.getLogger("hotloop.diagnose")


def diagnose(
    evidence: Evidence, warn: Callable[[str], None] | None = None, entries: Sequence[RuleEntry] | None = None
) -> tuple[Finding, ...]:
    """Every finding of the run, in the order of ``weighed``.

    A rule that fails is told to ``warn`` in words (default: the log) and does not stop the others.
    ``entries`` are the rules to run, default all.
    """
    found: list[Finding] = []
    for rule in rules() if entries is None else entries:
        found.extend(_run(rule, evidence, warn or _log.warning))
    steps = evidence.steps
    kept = weighed(found, steps.step_s, evidence.limits, sure=not evidence.crowded_out)
    return tuple(in_framework_names(one, steps) for one in kept)


def _run(rule: RuleEntry, evidence: Evidence, warn: Callable[[str], None]) -> list[Finding]:
    try:
        return [f for f in rule(evidence) if f.cost_s_per_step > 0 or not rule.costed]
    except Exception as error:  # a broken rule must not hide what the others found
        at = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{at.filename}:{at.lineno}"
        warn(f"the rule {rule.id} failed and was left out ({type(error).__name__}: {error}, {place})")
        return []


def in_framework_names(finding: Finding, steps: Steps) -> Finding:
    """The finding, the loader's arguments named as a framework that builds the loader takes them."""
    driving = steps.train_loader()
    words = spelled_by(driving.by) if driving is not None else None
    if driving is None:
        return finding
    if words is None:
        built = f"on the DataLoader that {driving.maker}() builds"
        if not driving.maker or finding.where != driving.where:
            return finding
        return replace(finding, advice=finding.advice.replace("on the DataLoader", built))
    others = {one.where for one in steps.loaders if one.by != driving.by} - {driving.where, None}
    if finding.where in others:  # built by the user's own code
        return finding
    names = {**words.names, **(words.evaluation if finding.id == "cadence/evaluation" else {})}
    unknown = "|".join(set(LOADER_DEFAULTS) - set(names))
    advice = re.sub(rf" and ({unknown})=\w+", "", finding.advice)
    advice = re.sub(rf"\b({'|'.join(names)})\b", lambda found: names[found[1]], advice)
    advice = advice.replace("on the DataLoader", f"in {words.words}")
    return replace(finding, advice=advice)


def doubt(evidence: Evidence) -> str:
    """The reason as a clause, the weightiest alone; "" where there is none."""
    steps, limits = evidence.steps, evidence.limits
    if evidence.crowded_out:
        alone = ""
        if evidence.threads == 1 and evidence.taken:  # others of torch's threads wait too, unseen
            alone = f": alone a step takes at least {duration(steps.step_s * (1.0 - evidence.taken))}"
        return (
            f"other programs kept {evidence.others_cores:.1f} of {evidence.cores:g} cores busy, and the "
            f"training thread got {share(evidence.got)} of the core time it wanted{alone}"
        )
    if evidence.stolen >= limits.stolen_ratio:
        return f"the machine under this virtual one took {share(evidence.stolen)} of its cores' time"
    # Steps so few and so different that their mean is not known to a quarter.
    seconds = inside(steps)[np.asarray(steps.steady, bool)]
    if len(seconds) < 2 or len(seconds) >= limits.few_steps:
        return ""
    mean = float(seconds.mean())
    if mean <= 0 or half_width(seconds) / mean <= limits.few_steps_ratio:
        return ""
    low, high = duration(float(seconds.min())), duration(float(seconds.max()))
    return f"its {len(seconds)} steps after the first took from {low} to {high}"
