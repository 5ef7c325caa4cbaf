"""Ranks side by side: what each did per step on its own, and what it spent waiting for the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.hotspots import Hotspot, hottest
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

    @property
    def shared_s(self) -> float:
        """What it spends in the phases in which ranks meet."""
        return sum(self.shared.values())


def loads(evidence: Evidence) -> tuple[RankLoad, ...]:
    """The load of each rank that trained; empty for a single rank."""
    ranks = [rank for rank in evidence.ranks if rank.num_steps >= evidence.limits.min_steps]
    if len(ranks) < 2:
        return ()
    meets = max((rank.waits_inside for rank in ranks), key=len)
    return tuple(
        RankLoad(
            steps=rank,
            own={name: rank.per_step(name) for name in PHASES if name not in ("startup", *meets)},
            shared={name: rank.per_step(name) for name in meets},
        )
        for rank in ranks
    )


def lead(all_loads: tuple[RankLoad, ...]) -> tuple[RankLoad, float]:
    """The rank with the most work of its own, and its lead over the mean of the others (s per step)."""
    slowest = max(all_loads, key=lambda load: load.own_s)
    others = [load.own_s for load in all_loads if load is not slowest]
    return slowest, slowest.own_s - sum(others) / len(others)


def waiting_s(all_loads: tuple[RankLoad, ...], slowest: RankLoad) -> float:
    """Seconds per step the others spend where ranks meet beyond the slowest rank: waiting."""
    others = [load.shared_s for load in all_loads if load is not slowest]
    return sum(others) / len(others) - slowest.shared_s


def largest_difference(slowest: RankLoad, all_loads: tuple[RankLoad, ...]) -> tuple[str, float]:
    """The phase of its own in which the slowest rank exceeds the others most, and by how much per step."""
    others = [load.own for load in all_loads if load is not slowest]
    gaps = {
        phase: seconds - sum(other[phase] for other in others) / len(others)
        for phase, seconds in slowest.own.items()
    }
    phase = max(gaps, key=lambda name: gaps[name])
    return phase, gaps[phase]


def line_apart(
    slowest: Steps, all_loads: tuple[RankLoad, ...], phase: str, gap_s: float, dominant_ratio: float
) -> tuple[Hotspot, float] | None:
    """The line that most of the slowest rank's excess in a phase is spent in, and the seconds per step that
    the others spend there on average; None where no line stands out, or where it is only slower there.
    """
    others = [load.steps for load in all_loads if load.steps is not slowest]
    elsewhere: dict[tuple[str, int], float] = {}
    for other in others:
        for place, seconds in _seconds_by_line(other, phase).items():
            elsewhere[place] = elsewhere.get(place, 0.0) + seconds / len(others)
    own = _seconds_by_line(slowest, phase)
    excess: list[LineCost] = []
    for line in slowest.lines:
        place = (line.place.file, line.place.line)
        if line.phase != phase or line.seconds <= 0 or elsewhere.get(place, 0.0) > _SHARED * own[place]:
            continue
        kept = 1 - elsewhere.get(place, 0.0) / own[place]
        excess.append(replace(line, seconds=line.seconds * kept, num_samples=round(line.num_samples * kept)))
    spot = hottest(excess, gap_s * slowest.num_steps)
    if spot is None or spot.share < dominant_ratio:
        return None
    places = {(line.place.file, line.place.line) for line in spot.lines}
    return spot, sum(elsewhere.get(place, 0.0) for place in places)


def _seconds_by_line(steps: Steps, phase: str) -> dict[tuple[str, int], float]:
    """Sampled seconds per step of each line in a phase."""
    found: dict[tuple[str, int], float] = {}
    for line in steps.lines:
        if line.phase == phase:
            place = (line.place.file, line.place.line)
            found[place] = found.get(place, 0.0) + line.seconds / max(1, steps.num_steps)
    return found
