"""Input made by the training loop itself, without a DataLoader: ``get_batch``, a generator, a replay
buffer, a thread that fills a queue, an environment that is stepped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hotloop.diagnose import groups, repeating
from hotloop.diagnose.costs import BUSY_PHASES, step_cpu_s
from hotloop.diagnose.evidence import Evidence, cause, spot
from hotloop.diagnose.groups import LineGroup, asking, hottest, quoted, sampled_interval, seconds_of
from hotloop.diagnose.line_kinds import by_rows, is_gather
from hotloop.diagnose.making import takes
from hotloop.diagnose.repeating import cheaper
from hotloop.diagnose.rollouts import ADVICE, acts
from hotloop.diagnose.series import one_off
from hotloop.findings import Finding, Place
from hotloop.measure.steps import Steps
from hotloop.units import duration, share

#: Libraries in which a loop waits for what another thread or process makes.
_HAND_OVER = ("queue", "threading", "multiprocessing", "selectors")
_TRAINS = ("forward", "backward", "optimizer")


@dataclass(frozen=True, kw_only=True)
class Inline:
    """How the loop makes its own batches; seconds per step. ``saved_s`` is saved by making them in the
    background.
    """

    wait_s: float
    saved_s: float
    num_samples: int  # behind both
    statement: Place | None  # the statement of the training loop
    hot: LineGroup | None  # the line that dominates, or the hottest where the loop acts
    handed_over: bool  # the loop waits there for another thread or process
    rollout: bool  # it is no batch: the loop acts
    top: tuple[str, ...]  # the costliest lines in words


def inline_input(evidence: Evidence) -> Inline | None:
    """The loop's own input, None with a DataLoader, without enough steps, or where it is not worth a word."""
    steps, limits = evidence.steps, evidence.limits
    loader = steps.train_loader()
    if loader is not None and "num_workers" in loader.settings:
        return None
    if steps.share("data_wait") < limits.worth_fixing_ratio:
        return None
    if one_off(steps, "data_wait", steps.span_totals["data_wait"]):
        return None
    lines = [line for line in steps.lines if line.role == "input"]
    making = groups.grouped(lines)
    total, num_samples = making.seconds, making.num_samples
    if num_samples < limits.min_samples:
        return None
    hot = hottest(lines, total)
    if hot is not None and _trains(steps, hot):
        return None
    wait = steps.per_step("data_wait") * steps.exposed("data_wait")
    dominant = hot if hot is not None and hot.share >= limits.dominant_line_ratio else None
    if dominant is not None and dominant.is_line and is_gather(dominant.source, dominant.library):
        if wait < limits.hand_over_s:
            return None
        dominant = None  # nothing of the line can be left out; it can only run beside the step
    handed_over = dominant is not None and dominant.library.startswith(_HAND_OVER)
    rollout = not handed_over and acts(evidence)
    return Inline(
        wait_s=wait,
        saved_s=min(wait, _saved(evidence, wait, making.on_cpu_ratio)),
        num_samples=num_samples,
        statement=asking(line for line in lines if line.statement) or steps.source_loop,
        hot=hot if rollout else dominant,
        handed_over=handed_over,
        rollout=rollout,
        top=tuple(
            f"{line.place}{quoted(line)} takes {share(line.seconds / total)} of it"
            for line in making.lines[:2]
        ),
    )


def own_input(evidence: Evidence) -> Iterator[Finding]:
    """The line that dominates the loop's own input."""
    inline = inline_input(evidence)
    if inline is None or inline.hot is None or inline.rollout:
        return
    steps, hot, wait = evidence.steps, inline.hot, duration(inline.wait_s)
    plain = not inline.handed_over
    again = repeating.repeated(evidence, hot, None) if plain else ""
    message = (
        f"{hot.what} at {spot(hot.place)} takes {share(hot.share)} of making a batch{hot.parts}, which the "
        f"training loop does itself for {wait} of each step."
    )
    if inline.handed_over:
        message = (
            f"Each step waits {wait} at {spot(hot.place)} for a batch that another thread or process makes "
            "too slowly."
        )
        advice = (
            "Make what fills the queue cheaper, or use worker processes (a DataLoader with num_workers): "
            "threads of one process run Python code one at a time."
        )
    else:
        advice = cheaper(evidence, hot)
    cost = hot.share * inline.wait_s
    made = "the wait takes" if inline.handed_over else "making batches takes"
    process = "" if inline.handed_over else ", in the training process"
    background = f"made in the background it would save {duration(inline.saved_s)} of each step"
    yield cause(
        evidence,
        cost_s=cost,
        ci95=sampled_interval(cost, hot.num_samples),
        message=message,
        advice=advice + repeating.advice(again),
        numbers=[
            f"{made} {wait} of each step ({share(inline.wait_s / steps.step_s)}){process}",
            takes(hot),
            *([background] if plain else []),
        ],
        where=hot.place,
        remedies=(*by_rows(hot.source), *repeating.remedies(again)) if plain else (),
        data={"share_of_make": hot.share, "statement": str(inline.statement or ""), **repeating.data(again)},
    )


def acting(evidence: Evidence) -> Iterator[Finding]:
    """The line that dominates what the loop does between its updates to get what they are made from."""
    inline = inline_input(evidence)
    if inline is None or inline.hot is None or not inline.rollout:
        return
    steps, hot, cost = evidence.steps, inline.hot, inline.hot.share * inline.wait_s
    # Nobody knows what more environments at once would save: a small one is left as it is.
    small = cost < evidence.limits.medium_ratio * steps.step_s
    taken = [share(cost / steps.step_s), hot.hottest_lines]
    yield cause(
        evidence,
        cost_s=cost,
        ci95=sampled_interval(cost, hot.num_samples),
        message=(
            f"{hot.what} at {spot(hot.place)} takes {duration(cost)} of every step "
            f"({'; '.join(filter(None, taken))}): the loop acts before it trains, for "
            f"{duration(inline.wait_s)} in all."
        ),
        advice=ADVICE,
        numbers=[takes(hot).replace("making", "acting")],
        where=hot.place,
        severity="info" if small else None,
        remedies=(),
        data={"nature": "python", "statement": str(inline.statement or "")},
    )


def _trains(steps: Steps, hot: LineGroup) -> bool:
    """Whether the line takes more of the step than of the input: what computes the step makes no batch."""
    there = [line for line in steps.lines if line.place.at_line == hot.place.at_line]
    step = seconds_of(line for line in there if line.phase in _TRAINS)
    return step > seconds_of(line for line in there if line.role == "input")


def _saved(evidence: Evidence, wait_s: float, on_cpu: float) -> float:
    """What one maker beside the step would save: the shorter of the two, as far as the cores allow."""
    steps = evidence.steps
    busy = sum(steps.per_step(phase) for phase in BUSY_PHASES)
    make_cpu = wait_s * on_cpu * evidence.got
    cores_full = (make_cpu + step_cpu_s(evidence, busy, wait_s, make_cpu)) / evidence.rank_cores
    return wait_s + busy - max(busy, wait_s, min(cores_full, wait_s + busy))
