"""Collectives that take a large part of the step, called from the loop or by DDP after backward."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

import numpy as np

from hotloop.diagnose.causes import at, beyond, calls_of, cause, in_framework
from hotloop.diagnose.crowding import core_time_got
from hotloop.diagnose.discovery import rule
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.facts import noted
from hotloop.diagnose.rank_compare import lead
from hotloop.findings import Finding
from hotloop.measure.steps import SiteCost, Steps
from hotloop.units import duration, share, size

_ADVICE = "Reduce metrics every N steps and several at once; drop barriers; let DDP reduce gradients."
_OF_A_FRAMEWORK = (
    "None of them is your code: leave out what asks for them in each step, such as metrics that are reduced "
    "over the ranks (sync_dist=True)."
)


@rule("distributed/slow-collective")
def slow_collective(evidence: Evidence) -> Iterable[Finding]:
    """Collectives in the step, less what is only waiting for a slower rank."""
    steps, limits = evidence.steps, evidence.limits
    sites = [site for site in steps.sites.get("collective", ()) if site.in_step and site.seconds > 0]
    if not sites:
        return
    seconds = beyond(steps, sum(site.seconds for site in sites), 0.0)
    cost = seconds - _waiting_for_others(evidence)
    if cost < limits.worth_fixing_ratio * steps.step_s:
        return
    top = max(sites, key=lambda site: site.seconds)
    theirs = in_framework(steps, top.place)
    yield cause(
        evidence,
        "distributed/slow-collective",
        message=(
            f"Collectives {'that the framework calls' if theirs else 'called from the loop'} take "
            f"{duration(seconds)} of every step "
            f"({share(seconds / steps.step_s)}), most of it {top.operation}{at(top.place)}."
        ),
        advice=_OF_A_FRAMEWORK if theirs else _ADVICE,
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


def _held_up(evidence: Evidence) -> bool:
    return any(
        core_time_got(evidence, (rank.pid,)) < evidence.limits.held_up_ratio for rank in evidence.ranks
    )


def _beyond_compute(evidence: Evidence) -> float:
    """What backward takes beyond its computation on the rank that comes last to the exchange, step by step.

    DDP times its first ten steps and few later ones, ranks that wait for each other included: of processes
    that have only just started that is long. Unbounded where it cannot be told: on an accelerator backward
    only launches, and where several batches make an update not every one exchanges.
    """
    ranks = evidence.ranks
    told = [noted(rank, "ddp").get("avg_backward_compute_s") for rank in ranks]
    computes = [float(one) for one in told if isinstance(one, int | float) and one > 0]
    rare = any(rank.num_updates != rank.num_steps for rank in ranks)
    if evidence.on_accelerator or rare or len(computes) < len(ranks):
        return inf
    num = min(rank.num_steps for rank in ranks)
    beyond = [rank.phase("backward")[:num] - one for rank, one in zip(ranks, computes, strict=True)]
    return max(0.0, float(np.median(np.min(beyond, axis=0))))


@rule("distributed/unoverlapped-collective")
def unoverlapped_collective(evidence: Evidence) -> Iterable[Finding]:
    """DDP's own communication that backward did not hide."""
    steps = evidence.steps
    # The slowest rank waits for nobody: its time is communication, the others wait for it as well.
    cost = min(rank.collective_in_backward_s for rank in evidence.ranks)
    cost = min(cost, steps.per_step("backward"), _beyond_compute(evidence))
    if cost < evidence.limits.worth_fixing_ratio * steps.step_s:
        return
    if not evidence.on_accelerator and _held_up(evidence):
        return  # one rank after the other waits for a core, and the others for it
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
        where=steps.source_loop,
    )
