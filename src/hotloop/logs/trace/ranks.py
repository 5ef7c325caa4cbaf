"""What only the traces of several ranks tell: the rank that the others wait for in collectives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hotloop.findings import Finding
from hotloop.logs.log import severity_of
from hotloop.logs.part import Part
from hotloop.units import duration

#: As in diagnose/limits.py: ranks that differ by less are even.
_UNEVEN: Final = 0.10


def compare(parts: Sequence[Part]) -> Iterator[Finding]:
    """A rank whose step is its own work while the others' is waiting in collectives."""
    ranks = {
        part.source.rank: {phase.name: phase.s_per_step for phase in part.phases}
        for part in parts
        if part.source.kind == "torch.profiler trace" and part.source.rank is not None and part.phases
    }
    if len(ranks) < 2:
        return
    step_s = max(sum(phases.values()) for phases in ranks.values())
    own = {rank: sum(phases.values()) - phases.get("collective", 0.0) for rank, phases in ranks.items()}
    slowest = max(own, key=lambda rank: own[rank])
    others = [rank for rank in ranks if rank != slowest]

    def ahead(of: dict[int, float]) -> float:
        return of[slowest] - sum(of[rank] for rank in others) / len(others)

    waiting = {rank: phases.get("collective", 0.0) for rank, phases in ranks.items()}
    cost = min(ahead(own), -ahead(waiting))
    if cost < _UNEVEN * step_s:
        return
    names = {name for phases in ranks.values() for name in phases} - {"collective"}
    by_phase = {
        name: ahead({rank: phases.get(name, 0.0) for rank, phases in ranks.items()}) for name in names
    }
    phase = max(by_phase, key=lambda name: by_phase[name])
    yield Finding(
        id="distributed/unbalanced-input" if phase == "data_wait" else "distributed/straggler",
        message=(
            f"Rank {slowest} is the slowest: {duration(ahead(own))} per step more than the others, "
            f"mostly in {phase.replace('_', ' ')}; they wait for it in collectives."
        ),
        advice=f"Look at what rank {slowest} alone does there, and at its device, cores and data.",
        evidence=tuple(
            f"rank {rank}: {duration(own[rank])} its own, {duration(waiting[rank])} collectives per step"
            for rank in sorted(ranks, key=lambda rank: -own[rank])[:8]
        ),
        cost_s_per_step=cost,
        share=cost / step_s,
        severity=severity_of(cost / step_s),
        rank=slowest,
        data={"phase": phase},
    )
