"""Where in a dataset's pipeline to cache, how much would hit, and what it gives: measured, then computed.

A hit costs reading the kept value and the stages after the cut; a miss costs all stages.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from torch.utils.data import IterableDataset

from hotloop.feed.budget import memory_budget, usable_cores
from hotloop.feed.determinism import Verdict, check_deterministic, spread
from hotloop.feed.plan_words import notes_on, table
from hotloop.feed.stage_costs import StageCost, measure_stages
from hotloop.feed.stages import find_pipeline

#: A cache that saves less of a sample's time than this is not worth its memory.
WORTHWHILE = 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cut:
    """Caching after one stage: what fits, and what a sample then takes.

    ``fraction`` of the samples fits and hits from the second epoch on (policy ``keep``). ``hit_s`` is what a
    hit takes with the stages after the cut; ``time_s`` and ``cpu_s`` are means over hits and misses.
    ``needed_fraction`` is what would have to fit for the workers to keep up; None: unknown, or not reachable
    by caching here. ``refused`` says why nothing can be cached here, where it cannot.
    """

    stage: str
    num_bytes: float
    fraction: float
    hit_s: float
    time_s: float
    cpu_s: float
    needed_fraction: float | None
    refused: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CachePlan:
    """What :func:`plan_cache` found; prints as a table of 80 columns.

    ``time_s`` and ``cpu_s`` are a sample's without a cache; ``miss_rate_per_s`` the samples a second that
    ``num_workers`` sustain without one; ``needed_fraction`` is c* = 1 - miss_rate_per_s / consumption_per_s,
    the part of the dataset that must hit if hits cost nothing. ``best`` is the stage to cache after, or None.
    """

    dataset: str
    num_samples: int
    num_measured: int
    max_bytes: int
    num_workers: int
    cores: float
    consumption_per_s: float | None
    stages: tuple[StageCost, ...]
    cuts: tuple[Cut, ...]
    best: Cut | None
    time_s: float
    cpu_s: float
    miss_rate_per_s: float
    needed_fraction: float | None
    verdict: Verdict
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain dictionaries, lists, numbers and text."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        return table(self)


def plan_cache(
    dataset: Any,
    *,
    max_bytes: str | float | int | None = "auto",
    num_samples: int = 32,
    consumption_per_s: float | None = None,
    num_workers: int | None = None,
) -> CachePlan:
    """Measure a dataset's stages and say where to cache.

    Args:
        dataset: a map-style dataset; how its stages are found is told in :mod:`hotloop.feed.stages`.
        max_bytes: memory for the cache: bytes, ``"50GB"``, a share of what is usable, or ``"auto"``.
        num_samples: how many samples to read, spread over the dataset.
        consumption_per_s: samples a second that training takes when it never waits, for c*.
        num_workers: loader workers that will read; by default one per usable core.

    Raises:
        TypeError: the dataset is iterable-style.
        ValueError: it is empty or has no length, or an argument is out of range.
    """
    if isinstance(dataset, IterableDataset):
        raise TypeError("plan_cache needs a map-style dataset: a stream has no samples to find again")
    if consumption_per_s is not None and consumption_per_s <= 0:
        raise ValueError(f"consumption_per_s must be positive, not {consumption_per_s}")
    if num_workers is not None and num_workers < 0:
        raise ValueError(f"num_workers must not be negative, not {num_workers}")
    indices = spread(dataset, num_samples)
    if not indices:
        raise ValueError(f"{type(dataset).__name__} is empty")
    most, cores = memory_budget(max_bytes), usable_cores()
    workers = max(1, int(cores) if num_workers is None else num_workers)
    verdict = check_deterministic(dataset)
    pipeline = find_pipeline(dataset, index=indices[0])
    stages = measure_stages(pipeline, indices)
    time_s = sum(stage.time_s for stage in stages)
    cpu_s = sum(stage.cpu_s for stage in stages)
    miss_rate = min(workers / time_s, cores / cpu_s if cpu_s else float("inf"))
    cuts = tuple(
        _cut(stages, k, most / len(dataset), refused, consumption_per_s, workers)
        for k, refused in enumerate(refusals(stages, verdict))
    )
    best = min((cut for cut in cuts if not cut.refused), key=lambda cut: cut.time_s, default=None)
    if best is not None and best.time_s > (1 - WORTHWHILE) * time_s:
        best = None
    plan = CachePlan(
        dataset=type(dataset).__name__,
        num_samples=len(dataset),
        num_measured=stages[0].num_samples,
        max_bytes=most,
        num_workers=workers,
        cores=cores,
        consumption_per_s=consumption_per_s,
        stages=stages,
        cuts=cuts,
        best=best,
        time_s=time_s,
        cpu_s=cpu_s,
        miss_rate_per_s=miss_rate,
        needed_fraction=max(0.0, 1 - miss_rate / consumption_per_s) if consumption_per_s else None,
        verdict=verdict,
    )
    return dataclasses.replace(plan, notes=notes_on(plan, pipeline.why_whole))


def refusals(stages: Sequence[StageCost], verdict: Verdict) -> list[str]:
    """For every stage why its output must not be kept; empty where it may be."""
    random = set(verdict.random_stages)
    names = [stage.name for stage in stages]
    first = min((names.index(name) for name in random if name in names), default=len(names))
    if random and first == len(names):
        # Some stage is random, and which could not be told: none is safe.
        first = 0
    found = []
    for k, stage in enumerate(stages):
        if k < first:
            found.append(f"cannot be stored: {stage.unstorable}" if stage.unstorable else "")
        elif stage.name in random or k == first:
            found.append("random")
        else:
            found.append(f"after {stages[first].name}")
    return found


def _cut(
    stages: Sequence[StageCost],
    k: int,
    room: float,
    refused: str,
    consumption_per_s: float | None,
    num_workers: int,
) -> Cut:
    stage = stages[k]
    time_s, cpu_s = sum(s.time_s for s in stages), sum(s.cpu_s for s in stages)
    hit_s = stage.hit_s + sum(s.time_s for s in stages[k + 1 :])
    hit_cpu_s = stage.hit_s + sum(s.cpu_s for s in stages[k + 1 :])
    fraction = 0.0 if refused else min(1.0, room / stage.num_bytes) if stage.num_bytes else 1.0
    return Cut(
        stage=stage.name,
        num_bytes=stage.num_bytes,
        fraction=fraction,
        hit_s=hit_s,
        time_s=fraction * hit_s + (1 - fraction) * time_s,
        cpu_s=fraction * hit_cpu_s + (1 - fraction) * cpu_s,
        needed_fraction=None
        if refused or consumption_per_s is None
        else needed_fraction(time_s, hit_s, num_workers / consumption_per_s),
        refused=refused,
    )


def needed_fraction(miss_s: float, hit_s: float, allowed_s: float) -> float | None:
    """The share that must hit for a mean of ``allowed_s`` a sample; None if not even all would do.

    With ``hit_s = 0`` this is c* = 1 - miss rate / consumption.
    """
    if miss_s <= allowed_s:
        return 0.0
    if hit_s > allowed_s:
        return None
    return (miss_s - allowed_s) / (miss_s - hit_s)
