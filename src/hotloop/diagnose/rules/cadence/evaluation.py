"""Evaluation takes a large part of the training span."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from hotloop.diagnose.causes import at, beyond, cause, steps_between
from hotloop.diagnose.costs import enough
from hotloop.diagnose.evidence import Evidence
from hotloop.findings import Finding
from hotloop.measure.steps import LoaderUse, Steps
from hotloop.units import duration, share

ID = "cadence/evaluation"


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
    interval = _interval_wanted(steps, seconds, every, limits.evaluation_free_ratio) if inside else None
    numbers = [
        f"{duration(seconds)} of {duration(steps.span_s)} in {len(inside) or 'unknown many'} evaluations"
    ]
    if inside:
        numbers.append(f"one evaluation every {_steps(every)}")
        numbers.append(f"one evaluation takes {duration(float(np.mean([e.seconds for e in inside])))}")
    wait = _loader_wait(steps, limits.evaluation_wait_ratio * seconds)
    if wait is not None:
        numbers.append(_describe_wait(wait))
    yield cause(
        evidence,
        ID,
        message=(
            f"Evaluation takes {share(seconds / steps.span_s)} of the training time"
            + (f": it runs every {_steps(every)}{at(where)}." if inside else ".")
        ),
        advice=_advice(every, interval, wait),
        numbers=numbers,
        cost_s=cost,
        where=where,
        ci95=_interval([e.seconds for e in inside], steps, cost),
        remedies=("less-frequent-evaluation",),
        data={
            "effect": "semantic",
            "num_evaluations": len(inside),
            "steps_between": every if inside else None,
            "every_nth": max(2, round(interval / every)) if interval else None,
        },
    )


def _steps(every: float) -> str:
    return "step" if round(every) == 1 else f"{every:.0f} steps"


def _interval_wanted(steps: Steps, seconds: float, every: float, free: float) -> int:
    """Steps between evaluations that would leave them the share ``free`` of the time."""
    training = max(1e-9, steps.span_s - seconds)
    return _round_up(every * seconds / training * (1 - free) / free)


def _advice(every: float, interval: int | None, wait: LoaderUse | None) -> str:
    text = "Evaluate less often, or on a part of the data"
    if interval is not None:
        now = _steps(every).removesuffix(" steps")
        text = f"Evaluate every {interval} steps instead of every {now}, or on a part of the data"
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
