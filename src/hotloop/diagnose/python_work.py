"""Which sampled lines are work beside the model: Python between its phases, and Python loops inside them."""

from __future__ import annotations

import re
import sys
from collections import defaultdict

from hotloop.diagnose.collating import ASKING, at_calls
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.groups import DOMINATES, LineGroup, costliest_first, group_lines, select
from hotloop.diagnose.source import loops_around
from hotloop.findings import Place
from hotloop.measure.steps import LineCost, SiteCost, Steps
from hotloop.source.loops import LoopText

#: Lines of these roles have rules of their own.
_OTHER_RULES = {"targets", "logging", "checkpoint", "evaluation", "viewer", "input"}
#: Pauses of the collector in these phases are part of what their own findings cost.
_COUNTED_ELSEWHERE = ("logging", "checkpoint", "evaluation", "startup")
#: A full collection or two happen in any run that starts; a pattern is more.
_FEWEST_COLLECTIONS = 5
OF_MODULES = ("forward", "__call__")
_OVER_PARAMETERS = re.compile(
    r"parameters\(|state_dict\(|named_buffers\(|buffers\(|\bparams?\b|param_groups|shadow", re.I
)
_UPDATES = re.compile(
    r"\.(mul_|add_|lerp_|copy_|sub_|div_|clamp_\w*|zero_|addcmul_|addcdiv_|data\b)|\*=|\+=|-=|/="
)
_SCANS = re.compile(r"isnan|isinf|isfinite|\.norm\(|\.item\(")


def beside_the_model(evidence: Evidence) -> list[LineGroup]:
    """Groups of lines that run between the phases of a step, costliest first."""
    steps = evidence.steps
    calls = at_calls(steps, *ASKING, "backward", "optimizer")
    around = select(steps, lambda line: line.library == "torch.optim.optimizer")  # the update itself
    others = viewer_lines(steps) + collecting_lines(steps) + calls + around
    lines = select(
        steps, lambda line: line.phase == "other" and (line.role not in _OTHER_RULES or is_wait(line))
    )
    return group_lines([line for line in lines if line not in others], steps.framework_call)


def is_wait(line: LineCost) -> bool:
    """Whether a line between batch and model only waits, off the CPU: it makes no targets."""
    return line.role == "targets" and line.nature == "waiting"


def collecting_lines(steps: Steps) -> list[LineCost]:
    """Lines of the step that call the garbage collector."""
    return select(steps, lambda line: line.phase == "other" and "gc.collect(" in line.source)


def collector_s(evidence: Evidence) -> float:
    """Seconds over the span the garbage collector takes where that is a pattern worth a word, else 0."""
    steps, loader = evidence.steps, evidence.steps.train_loader()
    elsewhere = list(_COUNTED_ELSEWHERE)
    if loader is not None and loader.settings.get("num_workers"):
        elsewhere.append("data_wait")  # workers make batches meanwhile
    if steps.compile_s > steps.gc_s:
        elsewhere.append("forward")  # the compiler's garbage
    own = steps.gc_s - sum(steps.gc_s_by_phase.get(phase, 0.0) for phase in elsewhere)
    seconds = max(own, sum(line.seconds for line in collecting_lines(steps)))
    visible = seconds >= evidence.limits.gc_ratio * steps.span_s and steps.gc_count >= _FEWEST_COLLECTIONS
    return seconds if visible else 0.0


def served_sockets(steps: Steps) -> list[SiteCost]:
    """Sites in the step that serve a socket, none where all of them only receive: that may be the data."""
    found = [one for one in steps.sites.get("socket", ()) if one.in_step]
    return [] if {one.operation for one in found} == {"recv"} else found


def viewer_lines(steps: Steps) -> list[LineCost]:
    """Lines that serve a socket in the step, and those reached from the same statements: what it renders."""
    lines, sockets = select(steps, lambda line: line.phase == "other"), served_sockets(steps)
    if not sockets and any(one.in_step for one in steps.sites.get("socket", ())):
        return []
    places = [site.place for site in sockets if site.place]
    polling, functions = {one.at_line for one in places}, {one.in_function for one in places}
    functions -= {steps.source_loop.in_function} if steps.source_loop else set()
    serving = [
        line
        for line in lines
        if line.role == "viewer" or line.place.at_line in polling or line.place.in_function in functions
    ]
    statements = polling | {line.statement.at_line for line in serving if line.statement}
    return [
        line for line in lines if line in serving or (line.statement and line.statement.at_line in statements)
    ]


def python_in_model(evidence: Evidence) -> list[LineGroup]:
    """Groups of interpreter-bound lines in Python loops inside forward or backward, over pixels or objects;
    of another library's work there; and lines of the training loop itself that wait off the CPU between the
    model's call and the loss.
    """
    loop_function = evidence.steps.source_loop.in_function if evidence.steps.source_loop else None
    lines = select(evidence.steps, lambda line: line.phase in ("forward", "backward"))
    by_loop: dict[tuple[str, int], list[LineCost]] = defaultdict(list)
    for line in lines:
        loops = _inner_loops(evidence, line) if line.nature == "python" else []
        if loops and not loops[0][1].structural:
            file, outer = loops[-1]
            by_loop[file, outer.line].append(line)
        elif line.statement is not None and _is_beside_modules(evidence, line):
            by_loop[line.statement.file, line.statement.line].append(line)
        elif (
            line.nature == "waiting"
            and line.phase == "forward"
            and line.place.in_function == loop_function
            and not line.library.startswith("torch")  # there it waits for a core, or for the lock
        ):
            by_loop[line.place.file, line.place.line].append(line)
    return costliest_first(by_loop.values())


def shared_loop(evidence: Evidence, group: LineGroup) -> Place | None:
    """The loop that a group of ``python_in_model`` is, None where one function has most of its time."""
    loops = _inner_loops(evidence, group.hottest)
    own_s = sum(line.seconds for line in group.lines if line.place.in_function == group.place.in_function)
    if not loops or own_s >= DOMINATES * group.seconds:
        return None
    return Place(file=loops[-1][0], line=loops[-1][1].line)


def inner_loop(evidence: Evidence, line: LineCost) -> LoopText | None:
    """The innermost loop around a line, or around a call of its function, that is not the training loop."""
    return next((loop for _, loop in _inner_loops(evidence, line)), None)


def per_parameter(evidence: Evidence, line: LineCost) -> str:
    """What a line does to each parameter in turn: "update" (in place), "scan" (it only looks), or ""."""
    loop = inner_loop(evidence, line)
    if loop is None or not _OVER_PARAMETERS.search(loop.over):
        return ""
    if _SCANS.search(loop.text):
        return "scan"
    if _UPDATES.search(loop.text):
        return "update"
    return "scan" if ".grad" in loop.text else ""


def _is_beside_modules(evidence: Evidence, line: LineCost) -> bool:
    """Whether it is in a library, not torch's or Python's, that the loop calls by way of no module."""
    in_forward = line.nature == "python" and line.phase == "forward"
    # Python's own is called by torch as well.
    own = line.library.startswith("torch") or line.library.split(".")[0] in sys.stdlib_module_names
    if not in_forward or not line.library or own or line.calls_module:
        return False
    for place in (line.place, *line.callers):
        if place.function.endswith(OF_MODULES):
            return False
        if any(_is_training_loop(evidence, line, place, one) for one in loops_around(evidence, place)):
            return True
    return False


def _inner_loops(evidence: Evidence, line: LineCost) -> list[tuple[str, LoopText]]:
    """The loops around a line inside the training loop, innermost first, each with its file: those of its
    function and of those that call it, up to a module's.
    """
    found: list[tuple[str, LoopText]] = []
    for place in (line.place, *line.callers):
        around = loops_around(evidence, place)
        inner = [loop for loop in around if not _is_training_loop(evidence, line, place, loop)]
        found += [(place.file, loop) for loop in inner]
        if len(around) > len(inner) or place.function.endswith(OF_MODULES):
            break
    return found


def _is_training_loop(evidence: Evidence, line: LineCost, place: Place, loop: LoopText) -> bool:
    """Whether a loop around ``place``, which leads to ``line``, drives the steps, or holds what does."""
    driven = [one for one in (*evidence.steps.driving, line.statement) if one and one != line.place]
    return any(one.file == place.file and loop.line <= one.line <= loop.end_line for one in driven)
