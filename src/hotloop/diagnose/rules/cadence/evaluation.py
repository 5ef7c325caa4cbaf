"""Evaluation takes a large part of the training span."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from hotloop.diagnose.causes import at, beyond, cause, steps_between
from hotloop.diagnose.costs import enough
from hotloop.diagnose.elementwise import by_elements
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.groups import LineGroup, select
from hotloop.diagnose.intervals import written
from hotloop.diagnose.python_work import OF_MODULES
from hotloop.diagnose.source import loops_around
from hotloop.findings import Finding, Place
from hotloop.measure.steps import LineCost, LoaderUse, Steps
from hotloop.units import duration, share

ID = "cadence/evaluation"

#: Where a line that takes the next batch is: starting workers is Python too.
_LOADING = ("torch.utils.data", "multiprocessing")

_WITHOUT_GRAPHS = (
    "Evaluate under torch.no_grad(): every forward builds a graph that nothing asks for, which takes time "
    "and keeps its activations."
)


def check(evidence: Evidence) -> Iterable[Finding]:
    """Evaluation time beyond what a sensible cadence would leave, with the interval that would."""
    steps, limits = evidence.steps, evidence.limits
    seconds = steps.span_totals.get("evaluation", 0.0)
    cost = beyond(steps, seconds, limits.evaluation_free_ratio)
    if not enough(evidence) or cost <= 0:
        return
    inside = [e for e in steps.evaluations if steps.span[0] <= e.start_s < steps.span[1]]
    where = max(inside, key=lambda e: e.seconds).place if inside else None
    every = steps_between(steps, inside)
    small = _small_batches(evidence, seconds)
    left = seconds - (small.saved_s if small is not None else 0.0)
    wanted = _interval_wanted(steps.span_s - seconds, left, every, limits.evaluation_free_ratio)
    interval = wanted if inside else None
    numbers = [
        f"{duration(seconds)} of {duration(steps.span_s)} in {len(inside) or 'unknown many'} evaluations"
    ]
    if inside:
        numbers.append(f"one evaluation every {_steps(every)}")
        numbers.append(f"one evaluation takes {duration(float(np.mean([e.seconds for e in inside])))}")
    wait = _loader_wait(steps, limits.evaluation_wait_ratio * seconds)
    if wait is not None:
        numbers.append(_describe_wait(wait))
    if small is not None:
        numbers.append(
            f"in batches of {small.batch_size} a forward takes {duration(small.forward_s)} a sample, in "
            f"training's of {small.wanted} no more than {duration(small.in_training_s)}"
        )
    looping = _python_loop(evidence, seconds)
    if looping is not None:
        numbers.append(f"{share(looping.seconds / seconds)} of it is Python{at(looping.hottest.place)}")
    graphs = sum(e.seconds for e in inside if e.builds_graphs) > sum(e.seconds for e in inside) / 2
    if graphs:
        numbers.append("its forwards build graphs for gradients that nothing asks for")
    advice = _advice(every, interval, steps, wait)
    if small is not None:
        much_left = beyond(steps, left, limits.evaluation_free_ratio) > 0
        advice = _batching(small, seconds) + (f" Then {advice[0].lower()}{advice[1:]}" if much_left else "")
    if graphs:
        advice = f"{_WITHOUT_GRAPHS} Then {advice[0].lower()}{advice[1:]}"
    if looping is not None:
        replaced = f"Replace the Python loop{at(looping.hottest.place)} by operations on whole arrays."
        advice = f"{replaced} Then {advice[0].lower()}{advice[1:]}"
    asked = written(evidence, "evaluation", every) if inside else None
    if asked is not None:
        where = Place(file=asked.file, line=asked.line)
        advice += f" It is asked for by {asked.text}."
    yield cause(
        evidence,
        ID,
        message=(
            f"Evaluation takes {share(seconds / steps.span_s)} of the training time"
            + (f": it runs every {_steps(every)}{at(where)}." if inside else ".")
        ),
        advice=advice,
        numbers=numbers,
        cost_s=cost,
        where=where,
        ci95=_interval([e.seconds for e in inside], steps, cost),
        remedies=(
            *(by_elements(evidence, looping.hottest.place) if looping is not None else ()),
            "less-frequent-evaluation",
        ),
        data={
            "effect": "semantic",
            "num_evaluations": len(inside),
            "steps_between": every if inside else None,
            "every_nth": max(2, round(interval / every)) if interval else None,
            "batch_size": small.wanted if small is not None else None,
            "builds_graphs": graphs,
        },
    )


def _python_loop(evidence: Evidence, seconds: float) -> LineGroup | None:
    """The function in which most of evaluation is Python in a loop; it is not the model's, nor the head of a
    loop over batches.
    """
    by_function: dict[tuple[str, str], list[LineCost]] = {}
    for line in select(evidence.steps, lambda line: line.phase == "evaluation" and line.nature == "python"):
        around = [loop for loop in loops_around(evidence, line.place) if loop.line < line.place.line]
        if line.place.function.endswith(OF_MODULES) or line.library.startswith(_LOADING) or not around:
            continue
        by_function.setdefault((line.place.file, line.place.function), []).append(line)
    groups = [
        LineGroup(lines=tuple(sorted(lines, key=lambda line: -line.seconds)))
        for lines in by_function.values()
    ]
    group = max(groups, key=lambda group: group.seconds, default=None)
    if group is None or group.num_samples < evidence.limits.min_samples:
        return None
    return group if group.seconds >= evidence.limits.hot_line_ratio * seconds else None


@dataclass(frozen=True, kw_only=True)
class _Small:
    """An evaluation loader whose batches are too small, beside what a training batch takes."""

    loader: LoaderUse
    batch_size: int
    wanted: int
    forward_s: float  # a sample, in evaluation
    in_training_s: float  # a sample, at most, in batches as large as training's
    saved_s: float  # over the training span


def _small_batches(evidence: Evidence, seconds: float) -> _Small | None:
    """The evaluation loader whose forwards cost far less in training's batches, which are known to fit.

    Its samples have the shapes of training's, so they can be stacked; what else a batch is used for
    (a metric in Python) may well be work for each sample, so nothing but forward is counted.
    """
    steps, train = evidence.steps, evidence.steps.train_loader()
    wanted = train.settings.get("batch_size") if train is not None else None
    whole = steps.totals.get("evaluation", 0.0)
    if train is None or not isinstance(wanted, int) or not train.batch_fields or whole <= 0:
        return None
    # Of an accelerator the host sees the launches only: a whole step is the bound there.
    phases = ("forward", "backward", "optimizer", "sync", "transfer", "other")
    counted = phases if evidence.on_accelerator else phases[:1]
    in_training_s = sum(map(steps.per_step, counted)) / wanted
    found = []
    for loader in steps.loaders:
        size = loader.settings.get("batch_size")
        if loader.role != "evaluation" or not isinstance(size, int) or not 0 < size < wanted:
            continue
        if round(loader.forwards, 1) != 1 or _samples(loader) != _samples(train):
            continue
        saved_s = loader.num_batches * (loader.forward_s - size * in_training_s) * min(1, seconds / whole)
        if saved_s >= evidence.limits.evaluation_batch_saves_ratio * seconds:
            found.append(
                _Small(
                    loader=loader, batch_size=size, wanted=wanted, forward_s=loader.forward_s / size,
                    in_training_s=in_training_s, saved_s=min(saved_s, seconds),
                )
            )  # fmt: skip
    return max(found, key=lambda one: one.saved_s, default=None)


def _samples(loader: LoaderUse) -> dict[str, tuple[int, ...]]:
    """The shape of one sample of each field, of a loader's first batch."""
    return {str(f.get("path")): tuple((f.get("shape") or ())[1:]) for f in loader.batch_fields}


def _batching(small: _Small, seconds: float) -> str:
    return (
        f"Give the loader{at(small.loader.where)} batch_size={small.wanted}, as training has, instead of "
        f"{small.batch_size}: that takes at least {share(small.saved_s / seconds)} off evaluation and "
        "changes no prediction."
    )


def _steps(every: float) -> str:
    return "step" if round(every) == 1 else f"{every:.0f} steps"


def _interval_wanted(training_s: float, seconds: float, every: float, free: float) -> int:
    """Steps between evaluations that would leave them the share ``free`` of the time."""
    return _round_up(every * seconds / max(1e-9, training_s) * (1 - free) / free)


def _advice(every: float, interval: int | None, steps: Steps, wait: LoaderUse | None) -> str:
    text = "Evaluate less often, or on a part of the data"
    if interval is not None:
        now = _steps(every).removesuffix(" steps")
        longer = f" (this run took {steps.num_steps})" if interval > steps.num_steps else ""
        text = f"Evaluate every {interval} steps{longer} instead of every {now}, or on a part of the data"
        batches = round(steps.num_steps / (steps.num_updates or steps.num_steps or 1))
        if batches > 1:  # of an update, which scripts that accumulate may count
            updates = f"{interval / batches:.0f} updates instead of {every / batches:.3g}"
            text += f" ({updates}, of {batches} batches each)"
    if wait is None:
        return text + "."
    workers = int(wait.settings.get("num_workers") or 0)
    more = "give its loader workers" if workers == 0 else "give its loader persistent_workers or more workers"
    return f"{text}; most of it waits for data: {more}."


def _round_up(value: float) -> int:
    """Up to two leading digits, as a person would choose it."""
    if value < 10:
        return max(2, math.ceil(value))
    unit = int(10 ** (int(math.log10(value)) - 1))
    return math.ceil(value / (5 * unit)) * 5 * unit


def _loader_wait(steps: Steps, least_s: float) -> LoaderUse | None:
    """The evaluation loader whose waits (start-up of workers included) dominate the evaluation."""
    loaders = [loader for loader in steps.loaders if loader.role == "evaluation"]
    slowest = max(loaders, key=_waited, default=None)
    return slowest if slowest is not None and _waited(slowest) > least_s else None


def _waited(loader: LoaderUse) -> float:
    return float(loader.wait_s.sum() + loader.iter_s.sum() + loader.shutdown_s.sum())


def _describe_wait(loader: LoaderUse) -> str:
    workers = loader.settings.get("num_workers")
    return (
        f"{duration(_waited(loader))} of it waiting for its loader{at(loader.where)} (num_workers={workers})"
    )


def _interval(seconds: list[float], steps: Steps, cost: float) -> tuple[float, float] | None:
    if len(seconds) < 3:
        return None
    error = 1.96 * float(np.std(seconds, ddof=1)) * math.sqrt(len(seconds)) / steps.num_steps
    return (max(0.0, cost - error), cost + error)
