"""One rank takes longer than the others, who wait for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hotloop.diagnose.causes import at, cause
from hotloop.diagnose.costs import enough
from hotloop.diagnose.crowding import crowd
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.hotspots import Hotspot
from hotloop.diagnose.rank_compare import (
    RankLoad,
    largest_difference,
    lead,
    line_apart,
    loads,
    waiting_s,
)
from hotloop.findings import Finding
from hotloop.units import duration, share

ID = "distributed/straggler"

#: Phases that point at the rank's input rather than at the rank.
_INPUT = ("data_wait", "epoch_gap")
#: What one rank does for all; the rules of these phases name line and interval.
_CADENCE = ("evaluation", "checkpoint", "logging")


def check(evidence: Evidence) -> Iterable[Finding]:
    """A rank whose own work is larger while the others wait where ranks meet."""
    ranks = loads(evidence)
    if not ranks or not enough(evidence):
        return
    slowest, ahead = lead(ranks)
    step_s = evidence.steps.step_s
    waits = waiting_s(ranks, slowest)
    cost = min(ahead, waits)
    if step_s <= 0 or cost < evidence.limits.straggler_ratio * step_s:
        return
    phase, gap = largest_difference(slowest, ranks)
    if phase in _INPUT or (phase in _CADENCE and slowest.steps.rank == evidence.steps.rank):
        return  # distributed/unbalanced-input or the cadence rules say which
    rank = slowest.steps.rank
    apart = (
        None
        if _held_up(evidence, slowest)
        else line_apart(slowest.steps, ranks, phase, gap, evidence.limits.dominant_line_ratio)
    )
    spot = apart[0] if apart is not None else None
    finding = cause(
        evidence,
        ID,
        message=(
            f"Rank {rank} is the slowest: {duration(ahead)} per step more than the others, mostly in "
            f"{phase if spot is None else spot.what + at(spot.place)}; they wait for it."
        ),
        advice=_advice(rank, phase, spot),
        numbers=[
            *(_describe(load) for load in ranks[:8]),
            f"{phase}: {duration(gap)} per step more on rank {rank}",
            *([] if apart is None else [_at_the_line(slowest, *apart)]),
            f"the others wait {duration(waits)} per step ({share(waits / step_s)})",
        ],
        cost_s=cost,
        where=None if spot is None else spot.place,
        data={"slowest_rank": rank, "phase": phase},
    )
    yield replace(finding, rank=rank)


def _held_up(evidence: Evidence, slowest: RankLoad) -> bool:
    """Whether the rank is slow because it waits for a core: no line is to blame then."""
    ran = crowd(evidence, (slowest.steps.pid,)).run_ratio
    return ran is not None and ran < evidence.limits.held_up_ratio


def _advice(rank: int, phase: str, spot: Hotspot | None) -> str:
    if spot is None:
        return f"Look at what rank {rank} alone does in {phase}, and at its device and cores."
    return (
        f"Do less of it on rank {rank}: share the work{at(spot.place)} out over the ranks, do it less often, "
        "or after training."
    )


def _at_the_line(slowest: RankLoad, spot: Hotspot, others_s: float) -> str:
    """What the line takes on the slow rank and on the others."""
    seconds = spot.seconds / max(1, slowest.steps.num_steps)
    elsewhere = f"{duration(others_s)} on the others" if others_s > 0 else "never seen on the others"
    return (
        f"{spot.what}{at(spot.place)}: {duration(seconds + others_s)} per step on rank "
        f"{slowest.steps.rank}, {elsewhere}"
    )


def _describe(load: RankLoad) -> str:
    meets = ", ".join(f"{duration(seconds)} {phase}" for phase, seconds in load.shared.items())
    return f"rank {load.steps.rank}: {duration(load.own_s)} own work, {meets} per step"
