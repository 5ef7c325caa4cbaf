"""Ranks side by side: what each did per step on its own, and what it spent waiting for the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import mean

from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.groups import LineGroup, hottest
from hotloop.measure.steps import LineCost, Steps
from hotloop.phases import PHASES

#: Where the others spend more than this part of it, the line is theirs too: the rank is slow, not the line.
_SHARED = 1 / 3


@dataclass(frozen=True, kw_only=True)
class RankLoad:
    """Seconds per step of one rank: its own work by phase, and the phases in which ranks meet."""

    steps: Steps
    own: Mapping[str, float]
    shared: Mapping[str, float]

    @property
    def own_s(self) -> float:
        """Its own work."""
        return sum(self.own.values())


@dataclass(frozen=True, kw_only=True)
class Lead:
    """The rank with the most work of its own, beside the others. Seconds per step.

    ``ahead_s`` is its lead over their mean, ``waits_s`` what they spend where ranks meet beyond it, ``gap_s``
    its lead in the ``phase`` in which it exceeds them most.
    """

    slowest: RankLoad
    others: tuple[RankLoad, ...]
    ahead_s: float
    waits_s: float
    phase: str
    gap_s: float

    @property
    def ranks(self) -> list[RankLoad]:
        """All of them, in their order."""
        return sorted((self.slowest, *self.others), key=lambda load: load.steps.rank)


def lead(evidence: Evidence) -> Lead | None:
    """The lead of one rank over those that were read whole; None for a single rank."""
    ranks = [
        rank for rank in evidence.ranks if rank.num_steps >= evidence.limits.min_steps and not rank.partly
    ]
    if len(ranks) < 2:
        return None
    meets = max((rank.waits_inside for rank in ranks), key=len)
    alone = [name for name in PHASES if name not in ("startup", *meets)]
    loads = [
        RankLoad(
            steps=rank,
            own={name: rank.per_step(name) for name in alone},
            shared={name: rank.per_step(name) for name in meets},
        )
        for rank in ranks
    ]
    slowest = max(loads, key=lambda load: load.own_s)
    others = tuple(load for load in loads if load is not slowest)
    gaps = {phase: slowest.own[phase] - mean(load.own[phase] for load in others) for phase in alone}
    phase = max(gaps, key=lambda name: gaps[name])
    met = mean(sum(load.shared.values()) for load in others)
    return Lead(
        slowest=slowest,
        others=others,
        ahead_s=slowest.own_s - mean(load.own_s for load in others),
        waits_s=met - sum(slowest.shared.values()),
        phase=phase,
        gap_s=gaps[phase],
    )


def line_apart(found: Lead, dominant_ratio: float) -> tuple[LineGroup, float] | None:
    """The line that most of the slowest rank's excess in a phase is spent in, and the seconds per step that
    the others spend there on average; None where no line stands out, or where it is only slower there.
    """
    slowest, phase = found.slowest.steps, found.phase
    elsewhere: dict[tuple[str, int], float] = {}
    for other in found.others:
        for place, seconds in _seconds_by_line(other.steps, phase).items():
            elsewhere[place] = elsewhere.get(place, 0.0) + seconds / len(found.others)
    own = _seconds_by_line(slowest, phase)
    excess: list[LineCost] = []
    for line in slowest.lines:
        place = line.place.at_line
        if line.phase != phase or line.seconds <= 0 or elsewhere.get(place, 0.0) > _SHARED * own[place]:
            continue
        kept = 1 - elsewhere.get(place, 0.0) / own[place]
        excess.append(replace(line, seconds=line.seconds * kept, num_samples=round(line.num_samples * kept)))
    spot = hottest(excess, found.gap_s * slowest.num_steps)
    if spot is None or spot.share < dominant_ratio:
        return None
    places = {line.place.at_line for line in spot.lines}
    return spot, sum(elsewhere.get(place, 0.0) for place in places)


def _seconds_by_line(steps: Steps, phase: str) -> dict[tuple[str, int], float]:
    """Sampled seconds per step of each line in a phase."""
    found: dict[tuple[str, int], float] = {}
    for line in steps.lines:
        if line.phase == phase:
            place = line.place.at_line
            found[place] = found.get(place, 0.0) + line.seconds / max(1, steps.num_steps)
    return found
