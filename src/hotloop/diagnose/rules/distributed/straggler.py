"""One rank takes longer than the others, who wait for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hotloop.diagnose.causes import cause
from hotloop.diagnose.costs import enough
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.rank_compare import RankLoad, largest_difference, lead, loads, waiting_s
from hotloop.findings import Finding
from hotloop.units import duration, share

ID = "distributed/straggler"

#: Phases that point at the rank's input rather than at the rank.
_INPUT = ("data_wait", "epoch_gap")
#: What one rank does for all; the rules of these phases name line and interval.
_CADENCE = ("evaluation", "checkpoint", "logging")


def check(evidence: Evidence) -> Iterable[Finding]:
    """A rank whose own work is larger while the others wait in backward or collectives."""
    ranks = loads(evidence)
    if not ranks or not enough(evidence):
        return
    slowest, ahead = lead(ranks)
    step_s = evidence.steps.step_s
    waits = waiting_s(ranks, slowest)
    cost = min(ahead, waits)
    if step_s <= 0 or cost < evidence.limits.straggler_ratio * step_s:
        return
    phase, gap = largest_difference(slowest.steps, ranks)
    if phase in _INPUT or (phase in _CADENCE and slowest.steps.rank == evidence.steps.rank):
        return  # distributed/unbalanced-input or the cadence rules say which
    finding = cause(
        evidence,
        ID,
        message=(
            f"Rank {slowest.steps.rank} is the slowest: {duration(ahead)} per step more than the others, "
            f"mostly in {phase}; they wait for it."
        ),
        advice=f"Look at what rank {slowest.steps.rank} alone does in {phase}, and at its device and cores.",
        numbers=[
            *(_describe(load) for load in ranks[:8]),
            f"{phase}: {duration(gap)} per step more on rank {slowest.steps.rank}",
            f"the others wait {duration(waits)} per step ({share(waits / step_s)})",
        ],
        cost_s=cost,
        data={"slowest_rank": slowest.steps.rank, "phase": phase},
    )
    yield replace(finding, rank=slowest.steps.rank)


def _describe(load: RankLoad) -> str:
    return (
        f"rank {load.steps.rank}: {duration(load.own_s)} own work, {duration(load.backward_s)} backward, "
        f"{duration(load.collective_s)} collectives per step"
    )
