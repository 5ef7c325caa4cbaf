"""Where in a dataset's pipeline to cache, how much would hit, and what it gives: measured, then computed.

A hit costs reading the kept value and the stages after the cut; a miss costs all stages.
"""

from __future__ import annotations

import dataclasses
import pickle
import textwrap
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset

from hotloop import units
from hotloop.feed import randomness
from hotloop.feed.budget import memory_budget, usable_cores
from hotloop.feed.determinism import Verdict, check_deterministic, spread
from hotloop.feed.holdings import left_as_it_was
from hotloop.feed.layout import encode, read, write
from hotloop.feed.pipelines import Pipeline
from hotloop.feed.stages import find_pipeline

#: Reading samples stops after this long, once there are as many as a spread needs.
MEASURE_S = 10.0
ENOUGH_SAMPLES = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageCost:
    """One stage, as measured on ``num_samples`` samples with one thread.

    ``time_s`` and ``num_bytes`` are means a sample. ``num_bytes`` is what caching after this stage keeps,
    ``hit_s`` what reading that back takes. ``unstorable`` says why the output cannot be kept.
    """

    name: str
    time_s: float
    num_bytes: float
    hit_s: float
    num_samples: int
    unstorable: str = ""


def measure_stages(pipeline: Pipeline, indices: Sequence[int]) -> tuple[StageCost, ...]:
    """Read these samples stage by stage, as a worker would: one torch thread. Random states are kept."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with randomness.preserved(), left_as_it_was(pipeline):
            return _measure(pipeline, indices)
    finally:
        torch.set_num_threads(threads)


def _measure(pipeline: Pipeline, indices: Sequence[int]) -> tuple[StageCost, ...]:
    # What is set up on first use (files, imports) is not the price of a sample.
    pipeline.run(indices[0], lambda name, value: None)
    began = wall = time.perf_counter()
    marks: dict[str, list[tuple[float, float, float]]] = {name: [] for name in pipeline.names}
    unstorable: dict[str, str] = {}

    def after(name: str, value: Any) -> None:
        nonlocal wall
        seconds = time.perf_counter() - wall
        if name in marks:
            marks[name].append((seconds, *_stored(name, value, unstorable)))
        wall = time.perf_counter()

    for count, index in enumerate(indices):
        if count >= ENOUGH_SAMPLES and time.perf_counter() - began > MEASURE_S:
            break
        wall = time.perf_counter()
        pipeline.run(index, after)
    return tuple(
        StageCost(
            name=name,
            time_s=float(np.mean([mark[0] for mark in found] or [0.0])),
            num_bytes=float(np.mean([mark[1] for mark in found] or [0.0])),
            hit_s=float(np.median([mark[2] for mark in found] or [0.0])),
            num_samples=len(found),
            unstorable=unstorable.get(name, ""),
        )
        for name, found in marks.items()
    )


def _stored(name: str, value: Any, unstorable: dict[str, str]) -> tuple[float, float]:
    """The bytes that caching a value takes, and the seconds that reading it back takes."""
    try:
        encoded = encode(value)
    except (pickle.PicklingError, TypeError, AttributeError, NotImplementedError) as error:
        unstorable[name] = str(error) or type(error).__name__
        return 0.0, 0.0
    memory = np.empty(encoded.layout.num_bytes, np.uint8)
    write(encoded, memory)
    began = time.perf_counter()
    read(encoded.layout, memory, copy=True)
    return encoded.layout.num_bytes, time.perf_counter() - began


#: A cache that saves less of a sample's time than this is not worth its memory.
WORTHWHILE = 0.1

_WIDTH = 80


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cut:
    """Caching after one stage: what fits, and what a sample then takes.

    ``fraction`` of the samples fits and hits from the second epoch on. ``hit_s`` is what a hit takes with the
    stages after the cut; ``time_s`` is the mean over hits and misses. ``needed_fraction`` is what would have
    to fit for the workers to keep up; None: unknown, or not reachable by caching here. ``refused`` says why
    nothing can be cached here, where it cannot.
    """

    stage: str
    num_bytes: float
    fraction: float
    hit_s: float
    time_s: float
    needed_fraction: float | None
    refused: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CachePlan:
    """What :func:`plan_cache` found; prints as a table of 80 columns.

    ``time_s`` is a sample's without a cache; ``miss_rate_per_s`` the samples a second that
    ``num_workers`` sustain without one; ``needed_fraction`` is c* = 1 - miss_rate_per_s / consumption_per_s,
    the part of the dataset that must hit if hits cost nothing. ``best`` is the stage to cache after, or None.
    """

    dataset: str
    num_samples: int
    num_measured: int
    max_bytes: int
    num_workers: int
    consumption_per_s: float | None
    stages: tuple[StageCost, ...]
    cuts: tuple[Cut, ...]
    best: Cut | None
    time_s: float
    miss_rate_per_s: float
    needed_fraction: float | None
    verdict: Verdict
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain dictionaries, lists, numbers and text."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        return _table(self)


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
    most = memory_budget(max_bytes)
    workers = max(1, int(usable_cores()) if num_workers is None else num_workers)
    verdict = check_deterministic(dataset)
    pipeline = find_pipeline(dataset, index=indices[0])
    stages = measure_stages(pipeline, indices)
    time_s = sum(stage.time_s for stage in stages)
    miss_rate = workers / time_s
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
        consumption_per_s=consumption_per_s,
        stages=stages,
        cuts=cuts,
        best=best,
        time_s=time_s,
        miss_rate_per_s=miss_rate,
        needed_fraction=max(0.0, 1 - miss_rate / consumption_per_s) if consumption_per_s else None,
        verdict=verdict,
    )
    return dataclasses.replace(plan, notes=_notes_on(plan, pipeline.why_whole))


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
    time_s = sum(s.time_s for s in stages)
    hit_s = stage.hit_s + sum(s.time_s for s in stages[k + 1 :])
    fraction = 0.0 if refused else min(1.0, room / stage.num_bytes) if stage.num_bytes else 1.0
    return Cut(
        stage=stage.name,
        num_bytes=stage.num_bytes,
        fraction=fraction,
        hit_s=hit_s,
        time_s=fraction * hit_s + (1 - fraction) * time_s,
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


def _table(plan: CachePlan) -> str:
    """The plan as text of at most 80 columns."""
    lines = [
        f"{plan.dataset}: {plan.num_samples:,} samples, {units.size(plan.max_bytes)} for the cache, "
        f"{_count(plan.num_workers, 'worker')}",
        f"measured on {_count(plan.num_measured, 'sample')}, one thread, ms a sample",
        "",
        f"{'stage':<21}{'ms':>9}{'kept':>11}{'fits':>7}{'ms then':>8}",
    ]
    for stage, cut in zip(plan.stages, plan.cuts, strict=True):
        row = f"{stage.name[:20]:<21}{_ms(stage.time_s):>9}"
        if cut.refused:
            lines.append(f"{row}{units.size(stage.num_bytes):>11} {cut.refused}"[:_WIDTH])
        else:
            lines.append(
                f"{row}{units.size(stage.num_bytes):>11}{units.share(cut.fraction):>7}{_ms(cut.time_s):>8}"
            )
    lines.append(f"{'a sample':<21}{_ms(plan.time_s):>9}")
    lines.append("")
    for text in (_advice(plan), *plan.notes):
        lines += textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


def _notes_on(plan: CachePlan, why_whole: str) -> tuple[str, ...]:
    """What a reader should know besides the table."""
    notes = [_sustained(plan)]
    if plan.best is not None and plan.best.fraction != 1:
        total = units.size(plan.best.num_bytes * plan.num_samples)
        notes.append(f"All of it would take {total}: bake() puts it on a local disk.")
    if why_whole:
        notes.append(
            f"Its stages could not be told apart: {why_whole}. Apply what is random as self.transform."
        )
    return tuple(notes)


def _advice(plan: CachePlan) -> str:
    best = plan.best
    if best is None:
        refused = [cut for cut in plan.cuts if cut.refused]
        if len(refused) == len(plan.cuts):
            return f"No stage can be cached: {refused[0].refused if plan.verdict else plan.verdict}."
        return "No cache: none of the stages would save a tenth of a sample's time within this memory."
    where = "" if best.stage == plan.stages[-1].name else f', stage="{best.stage}"'
    return (
        f"Cache after {best.stage}: cached(dataset{where}, max_bytes={plan.max_bytes}). "
        f"{units.share(best.fraction)} of the samples fit and hit from the second epoch on: "
        f"{_ms(plan.time_s)} ms a sample become {_ms(best.time_s)} ms."
    )


def _sustained(plan: CachePlan) -> str:
    rate = (
        f"{_count(plan.num_workers, 'worker')} sustain {units.rate(plan.miss_rate_per_s)} samples/s uncached"
    )
    if plan.consumption_per_s is None or plan.needed_fraction is None:
        return f"{rate}. Give consumption_per_s to learn how much of the dataset has to fit."
    wanted = f"training takes {units.rate(plan.consumption_per_s)}"
    if plan.needed_fraction == 0:
        return f"{rate}, {wanted}: the loader keeps up without a cache."
    text = f"{rate}, {wanted}: c* = {units.share(plan.needed_fraction)} of the samples must hit"
    best = plan.best
    if best is None:
        return text + "."
    if best.needed_fraction is None:
        return f"{text}; what follows {best.stage} is too slow even if all hit: take more workers."
    enough = "fits" if best.fraction >= best.needed_fraction else f"{units.share(best.fraction)} fits"
    return f"{text}, {units.share(best.needed_fraction)} with the work after {best.stage}; {enough}."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _ms(seconds: float) -> str:
    value = seconds * 1e3
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
