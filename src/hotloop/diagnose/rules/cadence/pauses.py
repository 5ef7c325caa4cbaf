"""Evaluation or writing checkpoints takes a large part of the training span."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from hotloop.diagnose.costs import AS_FAST, Feed, deliver_s
from hotloop.diagnose.evidence import Evidence, at, beyond, cause, epoch_steps, rarer, rule, steps_between
from hotloop.diagnose.groups import LineGroup, group_lines, select
from hotloop.diagnose.intervals import asked_by
from hotloop.diagnose.python_work import OF_MODULES
from hotloop.diagnose.rules.cadence.once_more import once_more
from hotloop.diagnose.source import loops_around, sources
from hotloop.findings import Finding, Place
from hotloop.measure.steps import Interval, LineCost, LoaderUse, SiteCost, Steps
from hotloop.stats import half_width
from hotloop.units import duration, share, size

_BEST = re.compile(r"(?m)^[^#\n]*\bload_best_model_at_end\s*=\s*True")


@rule("cadence/evaluation")
def evaluation(evidence: Evidence) -> Iterable[Finding]:
    """Evaluation time beyond what a sensible cadence would leave, with the interval that would."""
    yield from once_more(evidence)
    steps, limits = evidence.steps, evidence.limits
    seconds = steps.span_totals.get("evaluation", 0.0)
    cost = beyond(steps, seconds, limits.evaluation_free_ratio)
    if cost <= 0:
        return
    inside = [e for e in steps.evaluations if steps.span[0] <= e.start_s < steps.span[1]]
    where = _where(steps, inside, None, "evaluation")
    every = steps_between(steps, inside)
    free = limits.evaluation_free_ratio
    rest = max(1e-9, steps.span_s - seconds)
    places = {one.place for one in inside if one.place is not None}
    # Each at a place of its own, in no loop, has no interval.
    again = max(1, len(places)) < len(inside)
    again |= len({one.after_step for one in inside}) > 1 and any(
        loop.line != place.line for place in places for loop in loops_around(evidence, place)
    )
    interval = _round_up(every * seconds / rest * (1 - free) / free) if again else None
    numbers = [
        f"{duration(seconds)} of {duration(steps.span_s)} in {len(inside) or 'unknown many'} evaluations"
    ]
    if inside:
        numbers.append(_how_often(inside, every, again))
        numbers.append(f"one evaluation takes {duration(float(np.mean([e.seconds for e in inside])))}")
    first: list[str] = []  # what comes before evaluating less often
    looping = _python_loop(evidence, seconds)
    if looping is not None:
        place = at(looping.hottest.place)
        numbers.append(f"{share(looping.seconds / seconds)} of it is Python{place}")
        first.append(f"Replace the Python loop{place} by operations on whole arrays.")
    graphs = sum(e.seconds for e in inside if e.builds_graphs) > sum(e.seconds for e in inside) / 2
    if graphs and (steps.framework_call is None or where != steps.framework_call):
        numbers.append("its forwards build graphs for gradients that nothing asks for")
        first.append(
            "Evaluate under torch.no_grad(): every forward builds a graph that nothing asks for, which takes "
            "time and keeps its activations."
        )
    wait = max(_evaluating(steps), key=waited_s, default=None)
    if wait is not None and waited_s(wait) <= limits.evaluation_wait_ratio * seconds:
        wait = None  # start-up of workers included, it is not what the evaluation mostly is
    if wait is not None:
        numbers.append(
            f"{duration(waited_s(wait))} of it waiting for its loader{at(wait.where)} "
            f"(num_workers={wait.settings.get('num_workers')})"
        )
    each_s = seconds / max(1, len(inside))
    best = wanted(evidence, wait, each_s) if wait is not None else None
    alone = _alone(evidence, wait, each_s) if wait is not None else None
    rarer = _rarer(every, interval, steps) + (_waits(wait, best, each_s) if wait is not None else ".")
    first.append(f"Then {rarer[0].lower()}{rarer[1:]}" if first else rarer)
    asked = asked_by(evidence, "evaluation", every, where) if again else None
    if asked is not None and interval is not None:
        where = asked[0] or where
        # Of updates, where gradients are accumulated.
        value = int(re.findall(r"\d+", asked[1].partition(" (")[0])[-1])
        first.append(f"It is asked for by {asked[1]}; {_round_up(value * interval / every)} would do.")
    if any(_BEST.search(text) for text in sources(evidence).values()):
        first.append("load_best_model_at_end wants checkpoints at a multiple of the evaluations' interval.")
    yield cause(
        evidence,
        message=(
            f"Evaluation takes {share(seconds / steps.span_s)} of the training time ({share(free)} would do)"
            + (f": {_how_often(inside, every, again)}{at(where)}." if inside else ".")
        ),
        advice=" ".join(first),
        numbers=numbers,
        cost_s=cost,
        where=where,
        severity="info" if inside and not again else None,  # once is no cadence
        ci95=_spread([e.seconds for e in inside], cost),
        remedies=(*(["evaluation-workers"] if alone else []), "less-frequent-evaluation"),
        data={
            "effect": "semantic",
            "num_evaluations": len(inside),
            "steps_between": every if again else None,
            "every_nth": max(2, math.ceil(interval / every)) if interval else None,
            "builds_graphs": graphs,
            "loader_id": wait.id if wait is not None else None,
            "evaluation_workers": alone.workers if alone else None,
            "loader_saves_s": (each_s - alone.seconds) * len(inside) / steps.num_steps if alone else 0.0,
        },
    )


def _alone(evidence: Evidence, wait: LoaderUse, each_s: float) -> Wanted | None:
    """Another number of workers for the one loader of evaluation, started anew each time as they are."""
    best, several = wanted(evidence, wait, each_s, staying=False), _evaluating(evidence.steps)[1:]
    unfit = several or wait.settings.get("persistent_workers")
    return None if unfit or best is None or best.seconds >= each_s else best


def _python_loop(evidence: Evidence, seconds: float) -> LineGroup | None:
    """The function in which most of evaluation is Python in a loop; it is not the model's, nor the head of a
    loop over batches.
    """

    models = [one.place for one in evidence.steps.lines if one.phase == "evaluation" and one.calls_module]

    def loops(line: LineCost) -> bool:
        if line.phase != "evaluation" or line.nature != "python" or line.calls_module:
            return False
        over_batches = {one.line for one in models if one.file == line.place.file}
        known = loops_around(evidence, line.place)
        around = [one for one in known if over_batches.isdisjoint(range(one.line, one.end_line + 1))]
        heads = any(loop.line == line.place.line for loop in around)  # waits for what it goes through
        return bool(around) and not heads and not line.place.function.endswith(OF_MODULES)

    group = next(iter(group_lines(select(evidence.steps, loops))), None)
    if group is None or group.num_samples < evidence.limits.min_samples:
        return None
    return group if group.seconds >= evidence.limits.hot_line_ratio * seconds else None


def _how_often(inside: list[Interval], every: float, again: bool) -> str:
    if again:
        return f"it runs every {_steps(every)}"
    return "once at each place" if len(inside) > 1 else f"once, after step {inside[0].after_step}"


def _steps(every: float) -> str:
    return "step" if round(every) == 1 else f"{every:.0f} steps"


def _rarer(every: float, interval: int | None, steps: Steps) -> str:
    if interval is None:
        return "Evaluate less often, or on a part of the data"
    over = interval > steps.num_steps
    epoch = epoch_steps(steps)
    if 0 < epoch < interval and round(every) == round(epoch):
        count = math.ceil(interval / epoch)
        longer = f" (this run took {steps.num_steps / epoch:.0f})" if over else ""
        return f"Evaluate every {count} epochs{longer} instead of every epoch, or on a part of the data"
    longer = f" (this run took {steps.num_steps})" if over else ""
    now = _steps(every).removesuffix(" steps")
    return f"Evaluate every {interval} steps{longer} instead of every {now}, or on a part of the data"


def _waits(loader: LoaderUse, best: Wanted | None, each_s: float) -> str:
    """What the loader that most of an evaluation waits for wants."""
    if best is None:
        return "; most of it waits for data."
    return (
        f"; most of it waits for data: with {best.words} of its loader{at(loader.where)} one is predicted to "
        f"take {duration(best.seconds)} instead of {duration(each_s)}."
    )


def _round_up(value: float) -> int:
    """Up to two leading digits, as a person would choose it."""
    if value < 10:
        return max(2, math.ceil(value))
    unit = int(10 ** (int(math.log10(value)) - 1))
    return math.ceil(value / (5 * unit)) * 5 * unit


def _evaluating(steps: Steps) -> list[LoaderUse]:
    return [loader for loader in steps.loaders if loader.role == "evaluation"]


def _spread(seconds: list[float], cost: float) -> tuple[float, float] | None:
    """What slows one down multiplies what it takes: the interval is one of ratios."""
    if len(seconds) < 3:
        return None
    ratio = math.exp(min(9.0, half_width([math.log(max(1e-9, one)) for one in seconds])))
    return (cost / ratio, cost * ratio)


@rule("cadence/checkpoint")
def checkpoint(evidence: Evidence) -> Iterable[Finding]:
    """Checkpoint time beyond what a sensible cadence would leave."""
    steps, limits = evidence.steps, evidence.limits
    seconds = steps.span_totals.get("checkpoint", 0.0)
    cost = beyond(steps, seconds, limits.checkpoint_free_ratio)
    if cost <= 0:
        return
    inside = [c for c in steps.checkpoints if steps.span[0] <= c.start_s < steps.span[1]]
    sites = steps.sites.get("checkpoint", ())
    site = max(sites, key=lambda s: s.seconds, default=None)
    where = _where(steps, inside, site, "checkpoint")
    count = len(inside) or (site.count if site else 0)
    every = steps_between(steps, inside) if inside else steps.num_steps / max(1, count)
    asked = asked_by(evidence, "checkpoint", every, where)
    if asked is not None:
        where = asked[0] or where
    yield cause(
        evidence,
        message=(
            f"Writing checkpoints takes {share(seconds / steps.span_s)} of the training time "
            f"({share(limits.checkpoint_free_ratio)} would do): "
            f"{_each(count, every)}{at(where)}."
        ),
        advice=(
            "Write checkpoints less often (by time rather than by step), "
            "or copy the state to host memory and write it in a thread."
            + (f" They are asked for by {asked[1]}." if asked is not None else "")
        ),
        numbers=_numbers(steps, seconds, inside, site, _each(count, every)),
        cost_s=cost,
        where=where,
        severity="info" if count == 1 else None,
        data={
            "effect": "semantic",
            "num_checkpoints": count,
            "steps_between": every,
            "every_nth": rarer(steps, seconds, count, limits.rarer_ratio),
        },
    )


def _each(count: int, every: float) -> str:
    return f"one every {every:.0f} steps" if count > 1 else "once"


def _where(steps: Steps, inside: list[Interval], site: SiteCost | None, phase: str) -> Place | None:
    """Where most of a phase's time was asked for; where nobody saw that, its hottest line."""
    if site is not None and site.place is not None:
        return site.place
    started: dict[Place | None, float] = defaultdict(float)
    for one in inside:
        started[one.place] += one.seconds
    if (place := max(started, key=started.__getitem__, default=None)) is not None:
        return place
    groups = group_lines(select(steps, lambda line: line.phase == phase))
    return groups[0].hottest.place if groups else None


def _numbers(
    steps: Steps, seconds: float, inside: list[Interval], site: SiteCost | None, each: str
) -> list[str]:
    numbers = [f"{duration(seconds)} of {duration(steps.span_s)} in checkpoints, {each}"]
    if inside:
        numbers.append(f"one checkpoint takes {duration(float(np.mean([c.seconds for c in inside])))}")
    if site is not None and site.count:
        written = f", {size(site.num_bytes / site.count)} each" if site.num_bytes else ""
        numbers.append(
            f"{site.operation}: {site.count} calls, {duration(site.seconds / site.count)} each{written}"
        )
    return numbers


#: Seconds to start and end a forked worker, where the run shows none (FIELDNOTES 3.5).
_STARTING_S = 0.03


@dataclass(frozen=True, kw_only=True, order=True)
class Wanted:
    """The fewest workers about as fast as the fastest; ``seconds`` of one evaluation with them."""

    workers: int
    stay: bool
    seconds: float

    @property
    def words(self) -> str:
        """The arguments."""
        return f"num_workers={self.workers}" + " and persistent_workers=True" * self.stay


def waited_s(loader: LoaderUse) -> float:
    """Seconds that were waited for a loader, its workers' starts and ends included."""
    return float(loader.wait_s.sum() + loader.iter_s.sum() + loader.shutdown_s.sum())


def wanted(
    evidence: Evidence, loader: LoaderUse, evaluation_s: float, *, staying: bool = True
) -> Wanted | None:
    """What would suit a loader that evaluations of so many seconds go through, workers that stay among it if
    ``staying``; None where nobody knows, or where it has that already.
    """
    has, stays = int(loader.settings.get("num_workers") or 0), bool(loader.settings.get("persistent_workers"))
    made = loader.make_s if has or len(loader.make_s) else loader.wait_s
    times, number = loader.num_iterators, loader.batches_per_epoch
    if loader.own or loader.settings.get("iterable") or not (len(made) and times and number):
        return None
    own = max(0.0, evaluation_s - waited_s(loader) / times) / number
    make, got = float(np.median(made)), evidence.workers_got if has else evidence.got  # a new worker is slow
    computing = 1.0 if loader.make_on_cpu_ratio is None else loader.make_on_cpu_ratio
    feed = Feed(
        loader=loader, busy_s=own, wait_s=0.0, first_excess_s=0.0, make_s=make, transfer_s=0.0,
        make_cpu_s=make * got * computing, step_cpu_s=own, deliver_s=deliver_s(loader),
        cores=evidence.cores, workers=has,
    )  # fmt: skip
    each_s = _STARTING_S
    if has and not stays:
        first = np.maximum(0.0, loader.first_batch_s - make - feed.deliver_s)
        each_s = float(loader.iter_s.sum() + loader.shutdown_s.sum() + first.sum()) / times / has
    found = [Wanted(workers=0, stay=False, seconds=number * feed.at(0))]
    for workers in range(1, max(1, int(feed.cores)) + 1):
        seconds = make + number * feed.at(workers)
        found.append(Wanted(workers=workers, stay=False, seconds=seconds + workers * each_s))
        if staying and not (loader.dataset_changes or loader.anew or loader.settings.get("rebuilt")):
            found.append(Wanted(workers=workers, stay=True, seconds=seconds))
    fastest = min(one.seconds for one in found)
    best = min(one for one in found if one.seconds <= AS_FAST * fastest)
    return None if (best.workers, best.stay) == (has, stays) else best
