"""Gradients are reduced after backward instead of during it."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

import numpy as np

from hotloop.diagnose.causes import cause
from hotloop.diagnose.costs import enough
from hotloop.diagnose.crowding import crowd
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.facts import entries
from hotloop.findings import Finding
from hotloop.units import duration, share

ID = "distributed/unoverlapped-collective"


def _held_up(evidence: Evidence) -> bool:
    got = [crowd(evidence, (rank.pid,)).run_ratio for rank in evidence.ranks]
    return any(one is not None and one < evidence.limits.held_up_ratio for one in got)


def _beyond_compute(evidence: Evidence) -> float:
    """What backward takes beyond its computation on the rank that comes last to the exchange, step by step.

    DDP times its first ten steps and few later ones, ranks that wait for each other included: of processes
    that have only just started that is long. Unbounded where it cannot be told: on an accelerator backward
    only launches, and where several batches make an update not every one exchanges.
    """
    ranks = evidence.ranks
    told = [(entries(rank, "ddp") or ({},))[-1].get("avg_backward_compute_s") for rank in ranks]
    computes = [float(one) for one in told if isinstance(one, int | float) and one > 0]
    rare = any(rank.num_updates != rank.num_steps for rank in ranks)
    if evidence.on_accelerator or rare or len(computes) < len(ranks):
        return inf
    num = min(rank.num_steps for rank in ranks)
    beyond = [rank.phase("backward")[:num] - one for rank, one in zip(ranks, computes, strict=True)]
    return max(0.0, float(np.median(np.min(beyond, axis=0))))


def check(evidence: Evidence) -> Iterable[Finding]:
    """DDP's own communication that backward did not hide."""
    steps = evidence.steps
    # The slowest rank waits for nobody: its time is communication, the others wait for it as well.
    cost = min(rank.collective_in_backward_s for rank in evidence.ranks)
    cost = min(cost, steps.per_step("backward"), _beyond_compute(evidence))
    if not enough(evidence) or cost < evidence.limits.worth_fixing_ratio * steps.step_s:
        return
    if not evidence.on_accelerator and _held_up(evidence):
        return  # one rank after the other waits for a core, and the others for it
    notes = entries(steps, "ddp")
    compute = notes[-1].get("avg_backward_compute_s") if notes else None
    numbers = [f"{duration(cost)} of communication per step is not hidden behind backward"]
    if isinstance(compute, int | float):
        numbers.append(f"backward computes for {duration(float(compute))}")
    yield cause(
        evidence,
        ID,
        message=f"Reducing gradients adds {duration(cost)} to every step ({share(cost / steps.step_s)}).",
        advice=(
            "Use gradient_as_bucket_view=True and static_graph=True, accumulate under no_sync(), "
            "or compress gradients (bf16 hook)."
        ),
        numbers=numbers,
        cost_s=cost,
        where=steps.source_loop,
    )
