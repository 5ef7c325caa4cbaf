"""Step times over the run: first steps that take longer, rare ones, and ones that get longer and longer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hotloop.diagnose.costs import interval
from hotloop.diagnose.evidence import Evidence, cause, rule, spot
from hotloop.diagnose.groups import quoted
from hotloop.diagnose.python_work import collector_s
from hotloop.diagnose.rollouts import acts
from hotloop.diagnose.series import INSIDE, drift, grown_phase, hottest_line, inside
from hotloop.diagnose.source import text_of
from hotloop.findings import Finding, Place
from hotloop.measure.steps import LineCost, Steps, core_time_got
from hotloop.phases import CLASSES
from hotloop.source.clocks import late_data_time_at
from hotloop.units import duration, share

Indices = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


#: Of the steps that stand out, and of those of a period.
_MOSTLY = 0.75


@rule("trend/slow-warmup", costed=True)
def slow_warmup(evidence: Evidence) -> Iterator[Finding]:
    """Price the steps before the steady state; in a short run that is information only."""
    steps, limits = evidence.steps, evidence.limits
    if steps.steady.sum() < limits.min_steps or evidence.crowded:
        return  # where other programs take the cores, the first steps may only have had less of them
    first = int(np.argmax(steps.steady))
    steady = {phase: float(np.median(steps.phase(phase)[steps.steady])) for phase in INSIDE}
    extra = {phase: float((steps.phase(phase)[:first] - steady[phase]).sum()) for phase in INSIDE}
    extra.pop("data_wait")  # the first batch has a finding of its own
    total = sum(extra.values())
    if first == 0 or total < limits.warmup_s or total < limits.medium_ratio * steps.span_s:
        return
    phase = max(extra, key=lambda name: extra[name])
    usual = float(np.median(inside(steps)[steps.steady]))
    yield cause(
        evidence,
        message=(
            f"The first {first} {'step takes' if first == 1 else 'steps take'} {duration(total)} more than "
            f"steady ones ({duration(usual)} each), most of it in {phase}."
        ),
        numbers=[
            f"{duration(extra[phase])} of it in {phase}",
            f"{share(total / steps.span_s)} of a training span of {duration(steps.span_s)}; it fades in a "
            "longer run",
            *([f"torch.compile took {duration(steps.compile_s)}"] if steps.compile_s else []),
        ],
        cost_s=total / steps.num_steps,
        where=steps.source_loop,
        severity="info" if steps.span_s < limits.long_run_s else None,
        data={"steps": first, "phase": phase},
    )


@rule("trend/step-outliers", costed=True)
def step_outliers(evidence: Evidence) -> Iterator[Finding]:
    """Add up what rare steps take beyond the median, and name the phase it lies in."""
    steps, limits = evidence.steps, evidence.limits
    if int(steps.steady.sum()) < limits.outlier_min_steps:
        return
    times = inside(steps)
    median = float(np.median(times[steps.steady]))
    out = steps.steady & (times > limits.outlier_factor * median)
    if not 0 < out.mean() <= limits.outlier_steps_ratio:
        return
    usual = {phase: float(np.median(steps.phase(phase)[steps.steady & ~out])) for phase in INSIDE}
    excess = {phase: float((steps.phase(phase)[out] - usual[phase]).sum()) for phase in INSIDE}
    phase = max(excess, key=lambda name: excess[name])
    cost = excess[phase] / steps.num_steps
    fed = evidence.steps.train_loader() is not None or acts(evidence)  # of whose waits other rules speak
    elsewhere = phase == "logging" or (phase == "data_wait" and fed)
    elsewhere |= collector_s(evidence) > 0.5 * sum(excess.values())  # host/gc-pauses
    if elsewhere or cost < limits.worth_fixing_ratio * steps.step_s:
        return
    # On a CPU these are stretched by whatever else runs on the machine.
    noisy = phase in CLASSES["device"] and not evidence.on_accelerator
    line, where = hottest_line(steps, phase), np.flatnonzero(out)
    collected = f"garbage collection took {duration(steps.gc_s)} in {steps.gc_count} pauses"
    yield cause(
        evidence,
        message=(
            f"{_work(steps, line, where, excess[phase])}{int(out.sum())} of {steps.num_steps} steps take "
            f"{duration(float(times[out].mean()))} instead of {duration(median)}, the time lies in {phase}."
        ),
        advice=_of_outliers(evidence, noisy, where, line),
        numbers=[
            f"beyond the median they add {duration(float(sum(excess.values())))} to the run, "
            f"{duration(excess[phase])} of it in {phase}",
            f"steps {', '.join(str(i) for i in where[:6])}{' …' if len(where) > 6 else ''}",
            *([collected] if steps.gc_s else []),
            *_hottest(line, phase),
        ],
        cost_s=cost,
        where=line.place if line is not None and not noisy else steps.source_loop,
        severity="info" if noisy else None,
        data={"phase": phase, "steps": [int(i) for i in where[:50]]},
    )


def _hottest(line: LineCost | None, phase: str) -> Iterator[str]:
    if line is not None:
        yield f"hottest line of {phase}: {spot(line.place)}{quoted(line)}"


def _every(where: Indices) -> int | None:
    """The steps between two that stand out, None unless most of them, and most that are due, lie so."""
    gaps = np.diff(where)
    every = int(np.bincount(gaps).argmax()) if len(gaps) >= 3 else 1
    found = np.bincount(where % every).max()  # others stand out by chance
    due = (where[-1] - where[0]) // every + 1
    return every if every > 1 and found >= _MOSTLY * max(len(where), due) else None


def _work(steps: Steps, line: LineCost | None, where: Indices, seconds: float) -> str:
    """The function that takes most of so many seconds every N steps, "" where none does."""
    every = _every(where)
    if line is None or every is None:
        return ""
    same = (line.phase, line.place.file, line.place.function)
    own = sum(one.seconds for one in steps.lines if (one.phase, one.place.file, one.place.function) == same)
    if not line.place.function or own < 0.5 * seconds:
        return ""
    each = duration(seconds / len(where))
    return f"{line.place.function}() at {spot(line.place)} takes {each} every {every} steps: "


def _of_outliers(evidence: Evidence, noisy: bool, where: Indices, line: LineCost | None) -> str:
    if every := _every(where):
        if line is not None and line.nature == "python":
            return (
                f"Write what Python does every {every} steps as operations on whole arrays, or do it less "
                "often."
            )
        each = f"Look at what the script does every {every} steps"
        return f"{each}; do it less often, or outside the training loop."
    if noisy and evidence.crowded_out:
        return (
            "Other programs used the cores meanwhile: run it again when they do not, before you look further."
        )
    if noisy:
        return "Look at what else runs on this machine: the compute itself was held up."
    return "Look at what the script does in those steps only, and move it out of the training loop."


@rule("trend/throughput-decay", costed=True)
def throughput_decay(evidence: Evidence) -> Iterator[Finding]:
    """Speak of a monotone, significant growth of the steady step time, and name the phase that grew."""
    steps, limits = evidence.steps, evidence.limits
    if steps.span_s < limits.trend_span_s:
        return
    steady = inside(steps)[steps.steady]
    found = drift(steady, limits.trend_z)
    if found is None or found.growth < limits.decay_ratio:
        return
    if (1.0 + found.growth) * _slowed_by_others(evidence) < 1.0 + limits.decay_ratio:
        return
    grown = grown_phase(steps, steps.steady)
    if grown.seconds < 0.5 * (found.last - found.first) or grown.rest_ratio > 0.5 * grown.ratio:
        return  # all phases alike: the machine got slower, not the script
    phase, line = grown.phase, hottest_line(steps, grown.phase)
    cost = max(0.0, found.mean - found.first)
    yield cause(
        evidence,
        message=(
            f"Steps grow from {duration(found.first)} to {duration(found.last)} over the run "
            f"(+{share(found.growth)}), most of it in {phase}."
        ),
        advice=_of_decay(phase),
        numbers=[
            f"Theil-Sen slope {duration(found.slope * 1000)} per 1,000 steps, within both halves of the run",
            f"{phase} grew by {duration(grown.seconds)} per step from the first to the last quarter of the "
            "run",
            *_hottest(line, phase),
        ],
        cost_s=cost,
        ci95=interval(cost, steady),
        where=line.place if line is not None else steps.source_loop,
        data={"growth": found.growth, "phase": phase, "slope_s_per_step": found.slope},
    )


def _slowed_by_others(evidence: Evidence) -> float:
    """The core time got in the last quarter of the span over that in the first, at most 1."""
    (start, end), sampled = evidence.span, evidence.recording.process_system.get(evidence.steps.pid, {})
    quarter = (end - start) / 4
    first = core_time_got([sampled], start, start + quarter)
    return min(1.0, core_time_got([sampled], end - quarter, end) / max(first, 1e-9))


def _of_decay(phase: str) -> str:
    if phase == "data_wait":
        return (
            "Look for what grows with every sample read: a list appended to and searched, an open file read "
            "from its start, a cache without a bound."
        )
    if phase in ("other", "logging"):
        return (
            "Look for a list, a figure or a log that grows with every step and is walked through each time."
        )
    return (
        "Look for state that grows with every step: losses kept with their graph (use loss.item() or "
        "detach()), hooks registered again and again, sequences that get longer."
    )


@rule("trend/misleading-metric")
def misleading_metric(evidence: Evidence) -> Iterator[Finding]:
    """A «data time» whose clock is started inside the loop's body, when the batch is already there."""
    steps, place = evidence.steps, evidence.steps.source_loop
    waits = steps.share("data_wait") >= evidence.limits.worth_fixing_ratio
    if place is None or not waits or steps.train_loader() is None:
        return
    late = late_data_time_at(text_of(evidence, place.file), place.line)
    if late is None:
        return
    where = Place(file=place.file, line=late.node.lineno)
    yield cause(
        evidence,
        message=(
            f"«{late.name}» at {spot(where)} starts its clock after the batch has arrived: it cannot see "
            f"the {duration(steps.per_step('data_wait'))} each step waits for data."
        ),
        advice=f"Set {late.since} at the end of the previous iteration, before the loop asks for a batch.",
        numbers=[
            f"{late.since} is set at line {late.since_line}, inside the loop over the batches",
            f"data_wait is {share(steps.share('data_wait'))} of the training span",
        ],
        severity="info",
        where=where,
        data={"kind": "data-time-after-batch"},
    )
