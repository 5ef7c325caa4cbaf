"""Collectives that take a large part of the step, called from the loop or by DDP after backward."""

from __future__ import annotations

from collections.abc import Iterable

from hotloop.diagnose.evidence import Evidence, at, beyond, calls_of, cause, in_framework, rule
from hotloop.diagnose.facts import noted
from hotloop.diagnose.rank_compare import lead
from hotloop.findings import Finding
from hotloop.measure.steps import SiteCost, Steps
from hotloop.units import duration, share, size

_ADVICE = "Reduce metrics every N steps and several at once; drop barriers; let DDP reduce gradients."


@rule("distributed/slow-collective")
def slow_collective(evidence: Evidence) -> Iterable[Finding]:
    """Collectives in the step that a line of the user's calls, less what is only waiting for a slower rank.

    What a framework calls by itself in each step is a few bytes, in which it waits for the slowest rank.
    """
    steps, limits = evidence.steps, evidence.limits
    sites = [
        site
        for site in steps.sites.get("collective", ())
        if site.in_step and site.seconds > 0 and site.place and not in_framework(steps, site.place)
    ]
    if not sites:
        return
    seconds = beyond(steps, sum(site.seconds for site in sites), 0.0)
    cost = seconds - _waiting_for_others(evidence)
    if cost < limits.worth_fixing_ratio * steps.step_s:
        return
    top = max(sites, key=lambda site: site.seconds)
    yield cause(
        evidence,
        "distributed/slow-collective",
        message=(
            f"Collectives called from the loop take {duration(seconds)} of every step "
            f"({share(seconds / steps.step_s)}), most of it {top.operation}{at(top.place)}."
        ),
        advice=_ADVICE,
        numbers=[_describe(site, steps) for site in sites[:5]],
        cost_s=cost,
        where=top.place,
        data={"operation": top.operation},
    )


def _describe(site: SiteCost, steps: Steps) -> str:
    calls = max(1, site.count)
    each = f"{size(site.num_bytes / calls)} and {duration(site.seconds / calls)} each"
    return f"{calls_of(steps, site)}, {each}"


def _waiting_for_others(evidence: Evidence) -> float:
    """Seconds per step this rank spends in collectives only because another rank arrives later."""
    found = lead(evidence)
    if found is None or found.slowest.steps.rank == evidence.steps.rank:
        return 0.0
    return max(0.0, min(found.ahead_s, found.waits_s))


@rule("distributed/unoverlapped-collective")
def unoverlapped_collective(evidence: Evidence) -> Iterable[Finding]:
    """DDP's own communication that backward did not hide."""
    steps = evidence.steps
    # The slowest rank waits for nobody: its time is communication, the others wait for it as well.
    cost = min(rank.collective_in_backward_s for rank in evidence.ranks)
    if cost < evidence.limits.worth_fixing_ratio * steps.step_s:
        return
    compute = noted(steps, "ddp").get("avg_backward_compute_s")
    numbers = [f"{duration(cost)} of communication per step is not hidden behind backward"]
    if isinstance(compute, int | float):
        numbers.append(f"backward computes for {duration(float(compute))}")
    yield cause(
        evidence,
        "distributed/unoverlapped-collective",
        message=f"Reducing gradients adds {duration(cost)} to every step ({share(cost / steps.step_s)}).",
        numbers=numbers,
        cost_s=cost,
        # Ranks that get a part of a core wait for each other as well.
        ci95=(cost * evidence.got, cost) if evidence.crowded_out else None,
        where=steps.source_loop,
        data={"effect": "semantic"},
    )
