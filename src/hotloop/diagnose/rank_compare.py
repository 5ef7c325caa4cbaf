"""Ranks side by side: what each did per step on its own, and what it spent waiting for the others."""

from __future__ import annotations

from dataclasses import dataclass

from hotloop.diagnose.evidence import Evidence
from hotloop.measure.steps import Steps
from hotloop.phases import PHASES

#: Phases in which a rank does its own work; collectives and backward (DDP) hold the waiting for others.
_OWN = tuple(phase for phase in PHASES if phase not in ("startup", "backward", "collective"))


@dataclass(frozen=True, kw_only=True)
class RankLoad:
    """Seconds per step of one rank: its own work (backward left out), backward, and collectives."""

    steps: Steps
    own_s: float
    backward_s: float
    collective_s: float


def loads(evidence: Evidence) -> tuple[RankLoad, ...]:
    """The load of each rank that trained; empty for a single rank."""
    ranks = [rank for rank in evidence.ranks if rank.num_steps >= evidence.limits.min_steps]
    if len(ranks) < 2:
        return ()
    return tuple(
        RankLoad(
            steps=rank,
            own_s=sum(rank.per_step(phase) for phase in _OWN),
            backward_s=rank.per_step("backward"),
            collective_s=rank.per_step("collective"),
        )
        for rank in ranks
    )


def lead(all_loads: tuple[RankLoad, ...]) -> tuple[RankLoad, float]:
    """The rank with the most work of its own, and its lead over the mean of the others (s per step)."""
    slowest = max(all_loads, key=lambda load: load.own_s)
    others = [load.own_s for load in all_loads if load is not slowest]
    return slowest, slowest.own_s - sum(others) / len(others)


def waiting_s(all_loads: tuple[RankLoad, ...], slowest: RankLoad) -> float:
    """Seconds per step the others spend in backward and collectives beyond the slowest rank: waiting."""
    others = [load.backward_s + load.collective_s for load in all_loads if load is not slowest]
    return sum(others) / len(others) - slowest.backward_s - slowest.collective_s


def largest_difference(slowest: Steps, all_loads: tuple[RankLoad, ...]) -> tuple[str, float]:
    """The phase in which the slowest rank exceeds the others most, and by how much per step."""
    others = [load.steps for load in all_loads if load.steps is not slowest]
    gaps = {
        phase: slowest.per_step(phase) - sum(other.per_step(phase) for other in others) / len(others)
        for phase in _OWN
    }
    phase = max(gaps, key=lambda name: gaps[name])
    return phase, gaps[phase]
