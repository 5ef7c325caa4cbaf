"""Input made by the training loop itself, without a DataLoader: ``get_batch``, a generator, a replay
buffer.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from hotloop import units
from hotloop.diagnose import costs
from hotloop.diagnose.crowding import crowd
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.hotspots import Hotspot, hottest, quoted
from hotloop.diagnose.reading import is_gather
from hotloop.diagnose.rollouts import Rollout, rollout
from hotloop.diagnose.series import one_off
from hotloop.diagnose.source import text_of
from hotloop.findings import Place
from hotloop.measure.steps import LineCost, LoaderUse, Steps
from hotloop.written import tree_of

#: Methods by which a loop fills what it takes samples from.
_PUTS: Final = re.compile(r"_?(push|add|append|store|put|insert|extend|remember|record|collect|observe)")
#: Libraries in which a loop waits for what another thread or process makes.
_HAND_OVER = ("queue", "threading", "multiprocessing", "selectors")


@dataclass(frozen=True, kw_only=True)
class Inline:
    """How the loop makes its own batches; seconds per step. ``saved_s`` is saved by making them in the
    background.
    """

    wait_s: float
    saved_s: float
    statement: Place | None  # the statement of the training loop
    hot: Hotspot | None  # the line that dominates, or the hottest of the rollout, None where there is neither
    handed_over: bool  # the loop waits there for another thread or process
    top: tuple[str, ...]  # the costliest lines in words
    rollout: Rollout | None = None  # that most of it goes to
    behind: LoaderUse | None = None  # whose workers' batches that thread takes


def inline_input(evidence: Evidence) -> Inline | None:
    """The loop's own input, None with a DataLoader, without enough steps, or where it is not worth a word."""
    steps = evidence.steps
    limits = evidence.limits
    loader = steps.train_loader()
    if (loader is not None and "num_workers" in loader.settings) or not costs.enough(evidence):
        return None
    if steps.share("data_wait") < limits.worth_fixing_ratio:
        return None
    if one_off(steps, "data_wait", steps.span_totals["data_wait"]):
        return None
    lines = [line for line in steps.lines if line.role == "input"]
    total = sum(line.seconds for line in lines)
    spot = hottest(lines, total)
    wait = steps.per_step("data_wait") * costs.exposed_ratio(steps, "data_wait")
    dominant = spot if spot is not None and spot.share >= limits.dominant_line_ratio else None
    if dominant is not None and dominant.is_line and is_gather(dominant.source, dominant.library):
        if wait < limits.hand_over_s:
            return None
        dominant = None  # nothing of the line can be left out; it can only run beside the step
    rolled = rollout(evidence, lines)
    if rolled is not None:
        dominant = hottest(rolled.inside if rolled.in_environment else rolled.asking, total)
    handed_over = rolled is None and dominant is not None and dominant.library.startswith(_HAND_OVER)
    return Inline(
        wait_s=wait,
        saved_s=min(wait, _saved(evidence, wait, _on_cpu(lines))),
        statement=_statement(lines) or steps.source_loop,
        hot=dominant,
        handed_over=handed_over,
        top=tuple(
            f"{line.place}{quoted(line)} takes {units.share(line.seconds / total)} of it"
            for line in sorted(lines, key=lambda line: -line.seconds)[:2]
        ),
        rollout=rolled if dominant is not None else None,
        behind=_behind(steps) if handed_over else None,
    )


def filled(evidence: Evidence, inline: Inline) -> str:
    """What the loop takes its batches from and puts into as well (a replay buffer), "" for nothing."""
    place, loop = inline.statement, evidence.steps.source_loop
    if place is None or loop is None or place.file != loop.file:
        return ""
    return _filled(text_of(evidence, place.file), place.line, loop.line)


@lru_cache(maxsize=64)
def _filled(text: str, line: int, loop_line: int) -> str:
    nodes = list(ast.walk(tree_of(text) or ast.Module([], [])))
    loops = [one for one in nodes if isinstance(one, ast.For | ast.While) and one.lineno == loop_line]
    calls = [one for loop in loops for one in ast.walk(loop) if isinstance(one, ast.Call)]
    put = {
        ast.unparse(one.func.value)
        for one in calls
        if isinstance(one.func, ast.Attribute) and _PUTS.match(one.func.attr) and (one.args or one.keywords)
    }
    for call in calls:
        if not call.lineno <= line <= (call.end_lineno or call.lineno):
            continue
        taken = [call.func.value] if isinstance(call.func, ast.Attribute) else []
        puts = isinstance(call.func, ast.Attribute) and _PUTS.match(call.func.attr)
        for name in () if puts else map(ast.unparse, (*taken, *call.args)):
            if name in put:
                return name
    return ""


def _behind(steps: Steps) -> LoaderUse | None:
    """The loader whose workers made batches that the training loop was not seen to ask for: a thread does."""
    made = [one for one in steps.loaders if one.role == "unused" and 2 * len(one.make_s) >= steps.num_steps]
    return max(made, key=lambda one: float(one.make_s.sum()), default=None)


def _saved(evidence: Evidence, wait_s: float, on_cpu: float) -> float:
    """What one maker beside the step would save: the shorter of the two, as far as the cores allow."""
    steps = evidence.steps
    busy = sum(steps.per_step(phase) for phase in costs.BUSY_PHASES)
    met = crowd(evidence, (steps.pid,))
    make_cpu = wait_s * met.computing(on_cpu) * met.got
    cores_full = (make_cpu + costs.step_cpu_s(evidence, busy, wait_s, make_cpu)) / max(1.0, evidence.cores)
    return wait_s + busy - max(busy, wait_s, min(cores_full, wait_s + busy))


def _statement(lines: list[LineCost]) -> Place | None:
    seconds: dict[Place, float] = {}
    for line in lines:
        if line.statement is not None:
            seconds[line.statement] = seconds.get(line.statement, 0.0) + line.seconds
    return max(seconds, key=lambda place: seconds[place], default=None)


def _on_cpu(lines: list[LineCost]) -> float:
    total = sum(line.seconds for line in lines)
    return sum(line.on_cpu_ratio * line.seconds for line in lines) / total if total > 0 else 1.0
