"""Collectives called from the loop take a large part of the step."""

from __future__ import annotations

from collections.abc import Iterable

from hotloop.diagnose.causes import at, beyond, cause, in_framework, spot
from hotloop.diagnose.costs import enough
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.rank_compare import lead, loads, waiting_s
from hotloop.findings import Finding
from hotloop.measure.steps import SiteCost, Steps
from hotloop.units import duration, share, size

ID = "distributed/slow-collective"


_ADVICE = "Reduce metrics every N steps and several at once; drop barriers; let DDP reduce gradients."
_OF_A_FRAMEWORK = (
    "None of them is your code: leave out what asks for them in each step, such as metrics that are reduced "
    "over the ranks (sync_dist=True)."
)


def check(evidence: Evidence) -> Iterable[Finding]:
    """Collectives in the step, less what is only waiting for a slower rank."""
    steps, limits = evidence.steps, evidence.limits
    sites = [site for site in steps.sites.get("collective", ()) if site.in_step and site.seconds > 0]
    if not sites or not enough(evidence):
        return
    seconds = beyond(steps, sum(site.seconds for site in sites), 0.0)
    cost = seconds - _waiting_for_others(evidence)
    if cost < limits.worth_fixing_ratio * steps.step_s:
        return
    top = max(sites, key=lambda site: site.seconds)
    theirs = in_framework(steps, top.place)
    yield cause(
        evidence,
        ID,
        message=(
            f"Collectives {'that the framework calls' if theirs else 'called from the loop'} take "
            f"{duration(seconds)} of every step "
            f"({share(seconds / steps.step_s)}), most of it {top.operation}{at(top.place)}."
        ),
        advice=f"{_OF_A_FRAMEWORK}{_waited(evidence, top)}" if theirs else _ADVICE,
        numbers=[_describe(site, steps) for site in sites[:5]],
        cost_s=cost,
        where=top.place,
        data={"operation": top.operation},
    )


def _waited(evidence: Evidence, site: SiteCost) -> str:
    """What a collective of a few bytes takes its time for."""
    each = site.num_bytes / max(1, site.count)
    if each > evidence.limits.small_collective_bytes:
        return ""
    return (
        f" A {site.operation} of {size(each)} takes no time to send: the ranks wait in it for the slowest of "
        "them, so even out what they do before it (the input first)."
    )


def _describe(site: SiteCost, steps: Steps) -> str:
    calls = max(1, site.count)
    place = spot(site.place) or "unknown place"
    return (
        f"{place}: {site.operation}, {site.count / steps.num_steps:.2g} per step, "
        f"{size(site.num_bytes / calls)} and {duration(site.seconds / calls)} each"
    )


def _waiting_for_others(evidence: Evidence) -> float:
    """Seconds per step this rank spends in collectives only because another rank arrives later."""
    ranks = loads(evidence)
    if not ranks:
        return 0.0
    slowest, ahead = lead(ranks)
    if slowest.steps.rank == evidence.steps.rank:
        return 0.0
    return max(0.0, min(ahead, waiting_s(ranks, slowest)))
