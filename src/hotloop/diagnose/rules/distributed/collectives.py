"""Collectives that take a large part of the step, called from the loop or by DDP after backward."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from hotloop.diagnose.evidence import Evidence, at, beyond, calls_of, cause, in_framework, rule
from hotloop.diagnose.facts import noted
from hotloop.diagnose.rank_compare import lead
from hotloop.findings import Finding
from hotloop.measure.measure import TIMED_BY_DDP
from hotloop.measure.steps import Floats, SiteCost, Steps
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
    cost, error_s = _exposed(evidence.ranks)
    if cost - error_s < evidence.limits.worth_fixing_ratio * steps.step_s:
        return
    compute = noted(steps, "ddp").get("avg_backward_compute_s")
    numbers = [f"{duration(cost)} of communication per step is not hidden behind backward"]
    if isinstance(compute, int | float):
        numbers.append(f"backward computes for {duration(float(compute))}")
    yield cause(
        evidence,
        message=f"Reducing gradients adds {duration(cost)} to every step ({share(cost / steps.step_s)}).",
        numbers=numbers,
        cost_s=cost,
        # Ranks that get a part of a core wait for each other as well.
        ci95=(cost * evidence.got, cost) if evidence.crowded_out else None,
        where=steps.source_loop,
        data={"effect": "semantic"},
    )


def _exposed(ranks: Sequence[Steps]) -> tuple[float, float]:
    """Seconds per step of communication that no rank hides, and half of their 95 % interval.

    Who comes last waits for nobody: its time is communication, the others wait for it as well. On a host,
    which waits in backward, that is asked of each step; DDP timed about one in a hundred of them.
    """
    least = min(rank.collective_in_backward_s for rank in ranks)
    steps = min(rank.num_steps for rank in ranks)
    if not least or not steps or any(rank.facts.get("accelerator") for rank in ranks):
        return least, 0.0
    last = np.min([_backward(rank)[:steps] for rank in ranks], axis=0)
    computing = max(float(noted(rank, "ddp").get("avg_backward_compute_s") or 0.0) for rank in ranks)
    error_s = 1.96 * float(last.std()) / np.sqrt(TIMED_BY_DDP + steps / 100)
    return max(0.0, min(least, float(last.mean()) - computing)), error_s


def _backward(rank: Steps) -> Floats:
    """[steps] seconds of backward with the communication in it."""
    own = rank.phase("backward")
    whole: Floats = own * (1 + rank.collective_in_backward_s / max(own.mean(), 1e-9))
    return whole
