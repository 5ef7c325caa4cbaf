"""Which sampled lines are work beside the model: Python between its phases, and Python loops inside them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from hotloop.diagnose import costs
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.groups import LineGroup, group_lines, select
from hotloop.diagnose.source import Loop, function_text, hooks, loops_around, rounds_around
from hotloop.findings import Place
from hotloop.measure.steps import LineCost, ModuleCost, SiteCost, Steps

#: Lines of these roles have rules of their own.
_OTHER_RULES = {"targets", "logging", "checkpoint", "evaluation", "viewer", "input"}

#: Pauses of the collector in these phases are part of what their own findings cost.
_COUNTED_ELSEWHERE = ("logging", "checkpoint", "evaluation", "startup")
#: A full collection or two happen in any run that starts; a pattern is more.
_FEWEST_COLLECTIONS = 5

#: What a profiler left on spends its time in.
PROFILERS = ("torch.profiler", "torch.autograd.profiler", "torch._C._profiler")
#: Loops over the layers of a model are its structure, not a mistake.
_STRUCTURE = re.compile(
    r"\b\w*(layer|block|module|stage|head|param|weight|children|conv|cell|encoder|decoder|depth)\w*",
    re.I,
)
#: A line whose time is in these calls a module, the engine or the optimizer: accumulation loops do.
_CALLS_OF_THE_MODEL = ("torch.nn.modules", "torch.autograd", "torch.optim", "torch.utils.checkpoint")
#: Criteria are called sample by sample where a loss is written as a loop.
_CRITERIA = "torch.nn.modules.loss"
_CALLS_MODULE = re.compile(r"\bself(\.\w+)+\(|\bself(\.\w+)+\[[^]]*\]\(")
OF_MODULES = ("forward", "__call__")
_OVER_PARAMETERS = re.compile(
    r"parameters\(|state_dict\(|named_buffers\(|buffers\(|\bparams?\b|param_groups|shadow", re.I
)
_UPDATES = re.compile(
    r"\.(mul_|add_|lerp_|copy_|sub_|div_|clamp_\w*|zero_|addcmul_|addcdiv_|data\b)|\*=|\+=|-=|/="
)
#: A hook that takes what it sees out of the graph only looks at it; one that returns a value is of the model.
_LOOKS = re.compile(
    r"\.detach\(|\.numpy\(|\.item\(|\.tolist\(|\.data\b|\bno_grad\b|\binference_mode\b|\bnp\."
)
_GIVES = re.compile(r"^\s*return[ \t]+(?!None\b)\S", re.M)
_ASKS_ANEW = re.compile(r"^\s*[^=()]+=\s*next\(\s*iter\([\w.]+\)\s*\)\s*(#.*)?$")
_SCANS = re.compile(r"isnan|isinf|isfinite|\.norm\(|\.item\(")
_GRADIENTS = re.compile(r"\.grad\b")


def beside_the_model(evidence: Evidence) -> list[LineGroup]:
    """Groups of lines that run between the phases of a step, costliest first."""
    steps = evidence.steps
    others = viewer_lines(steps) + collecting_lines(steps) + dropping_lines(steps)
    lines = select(steps, lambda line: line.phase == "other" and line.role not in _OTHER_RULES)
    return group_lines([line for line in lines if line not in others], steps.framework_call)


def collecting_lines(steps: Steps) -> list[LineCost]:
    """Lines of the step that call the garbage collector."""
    return select(steps, lambda line: line.phase == "other" and "gc.collect(" in line.source)


def dropping_lines(steps: Steps) -> list[LineCost]:
    """Lines that only take the one batch of a new iterator: the rest is dropping its order of samples."""
    loader = steps.train_loader()
    if loader is None or loader.anew or loader.settings.get("num_workers"):
        return []
    if not costs.one_batch_each(loader):
        return []
    return select(steps, lambda line: line.phase == "other" and _ASKS_ANEW.search(line.source) is not None)


def collector_s(evidence: Evidence) -> float:
    """Seconds over the span the garbage collector takes where that is a pattern worth telling, else 0."""
    steps = evidence.steps
    elsewhere = sum(steps.gc_s_by_phase.get(phase, 0.0) for phase in _COUNTED_ELSEWHERE)
    if steps.compile_s > steps.gc_s:
        elsewhere += steps.gc_s_by_phase.get("forward", 0.0)  # the compiler's garbage
    if _mostly_profiling(steps):
        elsewhere += steps.gc_s_by_phase.get("other", 0.0)  # the profiler's
    loader = steps.train_loader()
    if loader is not None and loader.settings.get("num_workers"):
        elsewhere += steps.gc_s_by_phase.get("data_wait", 0.0)  # workers make batches meanwhile
    called = sum(line.seconds for line in collecting_lines(steps))
    seconds = max(steps.gc_s - elsewhere, called)
    visible = seconds >= evidence.limits.gc_ratio * steps.span_s and steps.gc_count >= _FEWEST_COLLECTIONS
    return seconds if visible else 0.0


def _mostly_profiling(steps: Steps) -> bool:
    """Whether most of the time between the phases of a step is a profiler's."""
    between = select(steps, lambda line: line.phase == "other")
    profiling = sum(line.seconds for line in between if line.library.startswith(PROFILERS))
    return profiling > 0.5 * sum(line.seconds for line in between)


def viewer_lines(steps: Steps) -> list[LineCost]:
    """Lines that serve a socket in the step, and those reached from the same statements: what it renders."""
    if _only_received(steps):
        return []
    places = [site.place for site in served_sockets(steps) if site.place]
    loop = steps.source_loop
    polling = {_line(place) for place in places}
    functions = {_function(place) for place in places}
    functions -= {_function(loop)} if loop else set()
    lines = select(steps, lambda line: line.phase == "other")
    serving = [
        line
        for line in lines
        if line.role == "viewer" or _line(line.place) in polling or _function(line.place) in functions
    ]
    statements = polling | {_line(line.statement) for line in serving if line.statement}
    return [
        line for line in lines if line in serving or (line.statement and _line(line.statement) in statements)
    ]


def served_sockets(steps: Steps) -> list[SiteCost]:
    """Sites in the step that serve a socket, none where all of them only receive: that may be the data."""
    return [] if _only_received(steps) else [one for one in steps.sites.get("socket", ()) if one.in_step]


def _only_received(steps: Steps) -> bool:
    operations = {one.operation for one in steps.sites.get("socket", ()) if one.in_step}
    return operations == {"recv"}


def python_in_model(evidence: Evidence) -> list[LineGroup]:
    """Groups of interpreter-bound lines in Python loops (pixels, objects) inside forward or backward, or in
    what an optimizer calls for the loss.
    """
    driven = evidence.steps.source_loop
    lines = select(
        evidence.steps,
        lambda line: (
            line.phase in ("forward", "backward")
            # What the function of the loop itself does beside the optimizer is in no closure.
            or (line.phase == "optimizer" and (driven is None or _function(line.place) != _function(driven)))
        ),
    )
    looping = [
        line
        for line in lines
        if line.nature == "python"
        and _in_data_loop(evidence, line)
        and not any(_rounds_above(evidence, line))
        and _hook(evidence, line) is None
    ]
    by_loop: dict[tuple[str, int], list[LineCost]] = {}
    for line in looping:
        by_loop.setdefault((line.place.file, _inner_loops(evidence, line)[-1].line), []).append(line)
    # An optimizer's closure: the model's own time is in other phases, so the rest of a function goes with it.
    for members in by_loop.values():
        functions = {_function(line.place) for line in members if line.phase == "optimizer"}
        members += [
            line
            for line in lines
            if line not in members and line.phase == "optimizer" and _function(line.place) in functions
        ]
    groups = [LineGroup(lines=tuple(sorted(g, key=lambda x: -x.seconds))) for g in by_loop.values()]
    return sorted(groups, key=lambda group: -group.seconds)


def in_hooks(evidence: Evidence) -> list[LineGroup]:
    """Groups of lines that only look at what forward or backward make, from hooks, costliest first."""
    found: dict[tuple[str, str], list[LineCost]] = defaultdict(list)
    for line in select(evidence.steps, lambda line: line.phase in ("forward", "backward")):
        hook = _hook(evidence, line)
        if hook is not None:
            found[_function(hook)].append(line)
    groups = [LineGroup(lines=tuple(sorted(one, key=lambda x: -x.seconds))) for one in found.values()]
    return sorted(groups, key=lambda group: -group.seconds)


def _hook(evidence: Evidence, line: LineCost) -> Place | None:
    """The line of a hook that a line of the model is reached from, if the hook only looks at what passes."""
    registered = hooks(evidence)
    for place in (line.place, *line.callers) if registered else ():
        names = [name for name in place.function.split(".") if name != "<locals>"]
        if names[-1] in registered or (len(names) > 1 and names[-2] in registered and _of_hook(place)):
            text = function_text(evidence, place)
            return place if _LOOKS.search(text) and not _GIVES.search(text) else None
        if names[-1] in OF_MODULES:
            return None
    return None


def _of_hook(place: Place) -> bool:
    """Whether a function is made by another, or called as an object."""
    return ".<locals>." in place.function or place.function.endswith(".__call__")


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """Short calls of a submodule, one for each item of a loop in its model's forward."""

    place: Place  # of the loop's line that most of their time was reached from
    module: ModuleCost
    group: LineGroup


def called_in_rounds(evidence: Evidence) -> list[Rounds]:
    """Loops over data inside forward that call a submodule many times for little each, costliest first."""
    found: dict[tuple[str, int], list[tuple[LineCost, Place, ModuleCost]]] = {}
    for line in select(evidence.steps, lambda line: line.phase == "forward"):
        for place, loop, module in _rounds_above(evidence, line):
            found.setdefault((place.file, loop.line), []).append((line, place, module))
            break
    rounds = []
    for members in found.values():
        at: dict[Place, float] = defaultdict(float)
        for line, place, _ in members:
            at[place] += line.seconds
        lines = sorted((line for line, _, _ in members), key=lambda line: -line.seconds)
        place = max(at, key=lambda one: at[one])
        rounds.append(Rounds(place=place, module=members[0][2], group=LineGroup(lines=tuple(lines))))
    return sorted(rounds, key=lambda one: -one.group.seconds)


def _rounds_above(evidence: Evidence, line: LineCost) -> Iterator[tuple[Place, Loop, ModuleCost]]:
    """The loops of the model that a line is reached from and that call a submodule in short rounds."""
    for place in (line.place, *line.callers):
        if line.statement is None or _function(place) == _function(line.statement):
            return
        for loop in rounds_around(evidence, place):
            module = _short_calls(evidence, place, loop)
            if module is not None:
                yield place, loop, module


def _short_calls(evidence: Evidence, place: Place, loop: Loop) -> ModuleCost | None:
    """Of the submodules a loop hands its items to, the costliest, if its calls are many and short.

    Modules of several parents may have one name: those count whose parent is of the class of the loop.
    """
    limits, modules = evidence.limits, evidence.steps.modules
    classes = {one.name: one.cls.rpartition(".")[2] for one in modules}
    owner = place.function.rpartition(".")[0].rpartition(".")[2]
    handed: list[ModuleCost] = []
    for name in loop.hands:
        named = [one for one in modules if one.name.rpartition(".")[2] == name]
        if len(named) > 1:
            named = [one for one in named if owner and classes.get(one.name.rpartition(".")[0]) == owner]
        handed += named
    module = max(handed, key=lambda one: one.forward_share, default=None)
    if module is None or module.calls < limits.many_calls or module.call_s > limits.short_call_s:
        return None
    return module


def once_a_pass(evidence: Evidence, line: LineCost) -> Place | None:
    """The statement a line was reached from, if it stands in a loop around the one over batches."""
    driven, statement = evidence.steps.source_loop, line.statement
    if driven is None or statement is None or _function(driven) != _function(statement):
        return None
    loops = loops_around(evidence, driven)
    batches = next((loop for loop in loops if loop.line == driven.line), None)
    if batches is None or batches.line <= statement.line <= batches.end_line:
        return None
    return statement if any(loop.line < statement.line <= loop.end_line for loop in loops) else None


def inner_loop(evidence: Evidence, line: LineCost) -> Loop | None:
    """The innermost loop around a line, or around a call of its function, that is not the training loop."""
    return next(iter(_inner_loops(evidence, line)), None)


def per_parameter(evidence: Evidence, group: LineGroup) -> str:
    """What a group does to each parameter in turn: "update" (in place), "scan" (it only looks), or ""."""
    loop = inner_loop(evidence, group.hottest)
    if loop is None or not _OVER_PARAMETERS.search(loop.over):
        return ""
    if _SCANS.search(loop.text):
        return "scan"
    if _UPDATES.search(loop.text):
        return "update"
    return "scan" if _GRADIENTS.search(loop.text) else ""


def _in_data_loop(evidence: Evidence, line: LineCost) -> bool:
    loop = inner_loop(evidence, line)
    if loop is None or loop.structural or _STRUCTURE.search(loop.over):
        return False
    if line.library.startswith(_CALLS_OF_THE_MODEL) and not line.library.startswith(_CRITERIA):
        return False
    return not _CALLS_MODULE.search(line.source)


def _inner_loops(evidence: Evidence, line: LineCost) -> list[Loop]:
    """The loops around a line inside the training loop, innermost first; without one, those around a call of
    the function it stands in, unless that is a module's.
    """
    for place in (line.place, *line.callers):
        around = loops_around(evidence, place)
        found = [loop for loop in around if not _is_training_loop(evidence, line, loop)]
        if found or len(around) > len(found) or place.function.endswith(OF_MODULES):
            return found
    return []


def _is_training_loop(evidence: Evidence, line: LineCost, loop: Loop) -> bool:
    driven = [place for place in (evidence.steps.source_loop, line.statement) if place is not None]
    return any(
        place.file == line.place.file
        and loop.line <= place.line <= loop.end_line
        and (place.line, place.function) != (line.place.line, line.place.function)
        for place in driven
    )


def _line(place: Place) -> tuple[str, int]:
    return (place.file, place.line)


def _function(place: Place) -> tuple[str, str]:
    return (place.file, place.function)
