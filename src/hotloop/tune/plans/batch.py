"""Which batch size and precision: what runs of several show of speed and memory, and what is between them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final

import numpy as np

from hotloop import units
from hotloop.diagnose.facts import autocast_share, noted, trained_modules
from hotloop.footprint.training import device_memory
from hotloop.measure.steps import Steps
from hotloop.model import Pipeline, Setup, predict
from hotloop.record.recording import Recording
from hotloop.tune.plans.choose import Plans

#: Of a device's memory a plan fills so much at most: allocations vary from step to step.
_FULL: Final = 0.85
#: The balanced size is the smallest this close to the fastest; the least memory may be this much slower.
_AS_FAST: Final = 0.05
_NO_SLOWER: Final = 0.02
#: Sizes are looked at from the smallest that ran to so many times the largest, so many to a doubling.
_BEYOND: Final = 2
_EACH: Final = 8
#: The part of the samples, from the end, whose losses say what a choice has learned.
_LAST: Final = 0.25


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A run and its plans; ``document`` is what is told of them."""

    document: Mapping[str, Any]
    plans: Plans
    steps: Steps
    recording: Recording
    room_bytes: float | None  # of the device asked about; None: of the run's

    @property
    def batch(self) -> float:
        """Samples of a batch of one rank."""
        return self.plans.pipeline.batch_samples

    @property
    def precision(self) -> str:
        """What the forward passes computed in."""
        if (autocast_share(self.steps) or 0.0) > 0.5:
            return str(noted(self.steps, "autocast").get("dtype") or "mixed")
        held = Counter[str]()
        for one in trained_modules(self.steps):
            held.update(one.get("param_dtypes") or {})
        return max(held, key=lambda name: held[name], default="")

    @property
    def model(self) -> tuple[Any, ...]:
        """What runs of one line through batch sizes have in common: model, precision, samples."""
        loader = self.steps.train_loader()
        shapes = [tuple(one.get("shape") or ())[1:] for one in loader.batch_fields] if loader else []
        params = sum(int(one.get("num_params") or 0) for one in trained_modules(self.steps))
        return self.precision, params, str(shapes)

    @property
    def held(self) -> tuple[float, float]:
        """Bytes that are there whatever the batch, and in all: of the device, else of the host as planned."""
        device = device_memory(self.recording, self.recording.ranks[0])
        whole = predict(self.plans.pipeline, self.setup).host_bytes / self.plans.machine.ranks
        return (device["between_bytes"], device["peak_bytes"]) if device else (whole, whole)

    @property
    def now_bytes(self) -> float:
        """Bytes of the run with its own settings: of the device, else of the host."""
        device = device_memory(self.recording, self.recording.ranks[0])
        return float(device["peak_bytes"]) if device else self.plans.now.host_bytes / self.plans.machine.ranks

    @property
    def room(self) -> float:
        """Bytes that a batch may fill, with what is there anyway."""
        device = device_memory(self.recording, self.recording.ranks[0])
        if device is None:
            return self.plans.machine.memory_bytes * _FULL / self.plans.machine.ranks
        capacity = self.room_bytes or device["capacity_bytes"]
        return (capacity * _FULL - device["outside_bytes"] * (not self.room_bytes)) if capacity else math.inf

    @property
    def setup(self) -> Setup:
        """The fastest way that is sure: a plan that is recommended, else the run's own settings."""
        ways = [(one.prediction, one.setup) for one in self.plans.plans if one.recommended]
        return min([(self.plans.now, self.plans.on), *ways], key=lambda way: way[0].s_per_step)[1]


@dataclass(frozen=True, kw_only=True)
class _Size:
    """A batch size of one model and precision. ``ran``: it is the one of a run."""

    of: Planned
    batch: int
    memory_bytes: float
    pipeline: Pipeline
    ran: bool

    def row(self, name: str, first: _Size) -> dict[str, Any]:
        """What is told of it beside the first run."""
        now = predict(first.pipeline, first.of.plans.on)
        found = predict(self.pipeline, self.of.setup) if name else now
        kept = name != "" and (self.of, self.batch) == (first.of, first.batch)
        return {
            "name": name or "now",
            "precision": self.of.precision,
            "batch_samples": self.batch,
            "ran": self.ran,
            "num_workers": self.of.setup.num_workers,
            "samples_per_s": found.samples_per_s,
            "gain": found.samples_per_s / now.samples_per_s if now.samples_per_s else None,
            "sure": kept or found.high / self.batch < now.low / first.batch,
            "memory_bytes": self.memory_bytes if name else self.of.now_bytes,
            "updates": first.batch / self.batch,
        }


def chosen(runs: Sequence[Planned]) -> dict[str, Any] | None:
    """A balanced, a fast and a small choice from several runs; of one what fits. None: nothing known."""
    first, room = runs[0], runs[0].room
    known = [run for run in runs if run.batch >= 1 and (run.plans.now.samples_per_s or 0) > 0]
    if first not in known:
        return None
    if len(known) == 1:
        return _alone(first)
    # Of one size the first run stands for itself, else the fastest.
    known.sort(key=lambda run: (*run.model, round(run.batch), run is not first, run.plans.now.s_per_step))
    lines = [list(group) for _, group in groupby(known, key=lambda one: one.model)]
    every = [size for line in lines for size in _sizes(line)]
    fits = [size for size in every if size.memory_bytes <= room]
    own = next(size for size in every if size.of is first and size.ran)
    rows = [own.row("", own)]
    if fits:
        speed = {id(one): predict(one.pipeline, one.of.setup).samples_per_s for one in fits}
        fastest = max(fits, key=lambda one: speed[id(one)])
        enough = [one for one in fits if speed[id(one)] >= (1 - _AS_FAST) * speed[id(fastest)]]
        now = predict(own.pipeline, first.plans.on).samples_per_s
        slow = [one for one in fits if speed[id(one)] >= (1 - _NO_SLOWER) * now]
        least = min(slow or [fastest], key=lambda one: one.memory_bytes)
        picks = {"balanced": min(enough, key=lambda one: one.batch), "fast": fastest, "small": least}
        rows += [one.row(name, own) for name, one in picks.items()]
    known_room = room if math.isfinite(room) else None
    notes = [] if fits else [f"no batch of these fits into {units.size(room)}"]
    return {"rows": rows, "room_bytes": known_room, "notes": [*notes, *_notes(rows, lines)]}


def _alone(run: Planned) -> dict[str, Any] | None:
    """What the memory of one run says: how many samples fit, not how fast they are."""
    fixed, whole = run.held
    if whole <= fixed or not math.isfinite(run.room):
        return None
    each = (whole - fixed) / run.batch
    most = max(0, int((run.room - fixed) / each))
    words = (
        f"batches of up to {most:,} samples fit into {units.size(run.room)}, {_FULL:.0%} of the device: "
        f"{units.size(fixed)} and {units.size(each)} a sample. How fast they are a run of another batch size "
        "shows, given with --beside"
    )
    return {"rows": [], "room_bytes": run.room, "most_samples": most, "notes": [words]}


def _sizes(line: Sequence[Planned]) -> Iterator[_Size]:
    """The sizes of runs of one model, and those between and beyond them where there is more than one."""
    ran = {round(run.batch): run for run in reversed(line)}
    numbers = sorted(ran)
    step_s = _straight([(size, float(run.plans.pipeline.step_s.mean())) for size, run in ran.items()])
    held = _straight([(size, run.held[1]) for size, run in ran.items()])
    grain = max(1, 2 ** int(math.log2(numbers[-1])) // _EACH)
    more = range(grain * -(-numbers[0] // grain), _BEYOND * numbers[-1] + 1, grain) if len(ran) > 1 else ()
    for number in sorted({*numbers, *more}):
        near = ran[min(numbers, key=lambda size: abs(math.log(size / number)))]
        pipeline, memory = near.plans.pipeline, near.held[1]
        if number not in ran:
            pipeline, memory = _scaled(pipeline, number, step_s(number)), held(number)
        yield _Size(of=near, batch=number, memory_bytes=memory, pipeline=pipeline, ran=number in ran)


def _straight(points: Sequence[tuple[float, float]]) -> Any:
    """The line through points, which neither falls nor begins below zero."""
    x, y = np.array(points).T
    slope, start = np.polyfit(x, y, 1) if len(x) > 1 else (0.0, y[0])
    if slope < 0:
        slope, start = 0.0, float(y.mean())
    if start < 0:
        slope, start = float((x * y).sum() / (x * x).sum()), 0.0
    return lambda at: float(start + slope * at)


def _scaled(run: Pipeline, batch: int, step_s: float) -> Pipeline:
    """The pipeline of a run with batches of so many samples, whose step's own work is ``step_s``."""
    times, work = batch / run.batch_samples, step_s / float(run.step_s.mean())
    return replace(
        run,
        make_s=run.make_s * times,
        ship_s=run.ship_s * times,
        collate_s=run.collate_s * times,
        cached_s=None if run.cached_s is None else run.cached_s * times,
        receive_s=run.receive_s * times,
        step_s=run.step_s * work,
        device_s=run.device_s * work,
        transfer_s=run.transfer_s * times,
        batches_per_epoch=run.batches_per_epoch / times,
        other_s=run.other_s * times,
        batch_samples=float(batch),
        memory=replace(run.memory, batch_bytes=run.memory.batch_bytes * times),
    )


def _notes(rows: Sequence[Mapping[str, Any]], lines: Sequence[Sequence[Planned]]) -> Iterator[str]:
    if any(not row["ran"] for row in rows):
        sizes = ["/".join(f"{one:g}" for one in sorted({run.batch for run in line})) for line in lines]
        yield (
            "* not run: time and memory are lines through the runs of one model, precision and sample "
            f"(batches of {', '.join(sizes)}), taken to differ in nothing else"
        )
    if any(row["updates"] != 1 for row in rows):
        yield (
            "another batch size is another training: multiply the learning rate by batch / batch now, "
            "warm it up, and compare the losses of equally many samples"
        )
    if len({row["precision"] for row in rows}) > 1:
        yield "another precision rounds otherwise: compare the losses"


def learned(runs: Sequence[Planned]) -> list[float | None]:
    """The mean loss of each run over the last of the samples that all of them saw; None where not seen."""
    seen = []
    for run in runs:
        counts = np.nancumsum(np.nan_to_num(run.steps.samples, nan=run.batch))
        there = (run.steps.loss_steps >= 0) & (run.steps.loss_steps < len(counts))
        seen.append((counts[run.steps.loss_steps[there]], run.steps.losses[there]))
    last = min((float(counts[-1]) for counts, _ in seen if len(counts)), default=0.0)
    means = [losses[(counts > (1 - _LAST) * last) & (counts <= last)] for counts, losses in seen]
    return [float(one.mean()) if len(one) and np.isfinite(one).all() else None for one in means]


def choices(runs: Sequence[Planned]) -> list[dict[str, Any]]:
    """Other trainings, by the words of their command that the first lacks, each with its fastest plan."""
    said = []
    for run, loss in zip(runs, learned(runs), strict=True):
        one = run.document
        ways = [one["now"], *(plan for plan in one["plans"] if plan["recommended"])]
        way = min(ways, key=lambda way: way["s_per_step"])
        said.append(
            {
                "words": [word for word in one["command"] if word not in runs[0].document["command"]],
                "batch_samples": run.batch,
                "precision": run.precision,
                "device_bytes": one["device_bytes"],
                "loss": loss,
                "name": way.get("name", "now"),
                **{key: way[key] for key in ("num_workers", "samples_per_s", "host_bytes")},
            }
        )
    return said
