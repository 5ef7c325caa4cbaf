"""What stands under ``if step % N == 0`` done more rarely: N is multiplied there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from hotloop.diagnose.intervals import What, asks
from hotloop.findings import Place
from hotloop.fix.calls import called
from hotloop.fix.conditions import counted, counter, ifs_around, remainders, zeros
from hotloop.fix.follow import Literal
from hotloop.fix.plan import Plan
from hotloop.fix.scene import Cannot
from hotloop.source.code import Code
from hotloop.source.flow import loops_around
from hotloop.source.nodes import last_name
from hotloop.source.tokens import atom, tokens_of

#: Where the finding asks for no other number.
_USUAL: Final = 4
#: Calls that change what is trained, or with what.
_TRAINS: Final = frozenset([
    "step", "backward", "zero_grad", "unscale_", "clip_grad_norm_", "clip_grad_value_", "update_parameters",
    "load_state_dict", "manual_seed", "set_epoch", "copy_", "lerp_", "requires_grad_",
])  # fmt: skip
#: Calls that only report what they are given, and those that make words or a number of it.
_REPORTS: Final = re.compile(
    r"^(print|write|set_postfix\w*|set_description\w*|log(_\w+)?|add_(scalars?|text|hparams)|info|debug"
    r"|warning|critical|track|str|format|float|int|round|item|len|join|dict)$"
)


@dataclass(frozen=True, kw_only=True)
class _Condition:
    """``if COUNT % EVERY == 0``."""

    code: Code
    branch: ast.If
    part: ast.BinOp


def rarer(plan: Plan, value: Any) -> None:
    """N times ``value``, for the ``if`` around the line of the finding."""
    place = plan.scene.where.get(plan.remedy)
    if place is None:
        raise Cannot("no finding of this run says where")
    times, factor = plan.scene.times.get(plan.remedy, 0), int(value or _USUAL)
    keyword = _keyword(plan, place)
    if keyword is not None:
        if times and times < factor:
            words = f"it was done {times} times in the run: {factor} times as rarely is never"
            raise Cannot(words, place.file, place.line, write="take a smaller number, or none")
        plan.put(keyword, keyword.name, int(keyword.code.source(keyword.node), 0) * factor)
        return
    found = _condition(plan, place)
    _guards_only_it(plan, found)
    _leaves_some(plan, found, times, factor)
    code, body, every = found.code, found.branch.body, found.part.right
    text = code.source(every)
    if isinstance(every, ast.Constant) and type(every.value) is int:
        new = str(every.value * factor)
    else:
        new = f"{atom(every, text)} * {factor}"
        new = new if tokens_of(code).outer(every) != code.span(every) else f"({new})"
    plan.replace(code, every, new, f"% {text} → % {new}")
    if len(body) > 1:
        lines = f"{code.path.name}:{code.line(body[0])}-{code.end(body[-1])[0]}"
        plan.remark(f"{plan.remedy}: all of {lines} stands under the same `if` and is done less often")


def _keyword(plan: Plan, place: Place) -> Literal | None:
    """The number of a keyword at a line that asks a framework for it: ``eval_steps=5``."""
    what: What = "checkpoint" if plan.remedy == "less-frequent-checkpoint" else "evaluation"
    code = plan.scene.code(place.file)
    for call in code.nodes(ast.Call):
        for keyword in call.keywords:
            whole = isinstance(keyword.value, ast.Constant) and type(keyword.value.value) is int
            here = whole and code.line(keyword.value) == place.line
            if here and asks(what, last_name(call.func), keyword.arg or ""):
                return Literal(code, keyword.value, keyword.arg or "")
    return None


# -- the way to the condition --------------------------------------------------------------------------------


def _condition(plan: Plan, place: Place) -> _Condition:
    """The innermost ``if`` with a remainder on the run's way to a line. Raises Cannot."""
    for code, node in _way(plan, place):
        for branch, inside in ifs_around(code, node):
            parts = remainders(code, branch.test)
            if not parts:
                continue
            found = _Condition(code=code, branch=branch, part=parts[0])
            test = code.source(branch.test)
            if not inside:
                raise Cannot.at(f"it stands in the else of `if {test}`", found.code, found.branch)
            if len(parts) != 1 or zeros(branch.test) != parts:
                raise Cannot.at(f"`if {test}` is no plain `% N == 0`", found.code, found.branch)
            counted(code, parts[0].left)
            return found
    raise Cannot("no `if ... % N == 0` stands around it", place.file, place.line)


def _way(plan: Plan, place: Place) -> Iterator[tuple[Code, ast.AST]]:
    """What stands at a line, then the calls that the run reached it by, the innermost first."""
    code = plan.scene.code(place.file)
    here = next(reversed(code.at_line(place.line)), None)
    if here is not None:
        yield code, here
    for frame in reversed(plan.scene.callers(place.file, place.line)):
        outer = plan.scene.code(frame.file)
        call = called(outer, frame)
        if call is not None:
            yield outer, call


# -- what else it guards -------------------------------------------------------------------------------------


def _guards_only_it(plan: Plan, found: _Condition) -> None:
    """Raises Cannot where more than evaluation, checkpoints and their messages stands under the ``if``."""
    code, branch = found.code, found.branch
    if branch.orelse:
        raise Cannot.at("the `if` around it has an else", found.code, found.branch)
    lines = range(code.line(branch.body[0]), code.end(branch)[0] + 1)
    reached = [("training itself", plan.scene.updating)]
    if plan.remedy == "less-frequent-checkpoint":
        reached.append(("an evaluation", plan.scene.scoring))
    for what, frames in reached:
        for frame in frames:
            if frame.file == str(code.path) and frame.line in lines:
                raise Cannot(f"{what} stands under the same `if`", frame.file, frame.line)
    for call in (one for statement in branch.body for one in code.nodes(ast.Call, statement)):
        if last_name(call.func) in _TRAINS:
            raise Cannot.at(f"{code.source(call.func)}() is done under the same `if`", found.code, call)
    _ends_nothing(found)
    _changes_nothing(found)


def _ends_nothing(found: _Condition) -> None:
    """Raises Cannot where a loop, the step or the function around the ``if`` is left under it."""
    code, branch = found.code, found.branch
    for jump in code.nodes((ast.Break, ast.Continue, ast.Return), branch):
        if isinstance(jump, ast.Return):
            if code.function_of(jump) is code.function_of(branch):
                raise Cannot.at("its function may be left under the same `if`", found.code, jump)
        elif not any(code.holds(branch, loop) for loop in loops_around(code, jump)[:1]):
            what = "training may be ended" if isinstance(jump, ast.Break) else "the step is cut short"
            raise Cannot.at(f"{what} under the same `if`", found.code, jump)


def _changes_nothing(found: _Condition) -> None:
    """Raises Cannot where a name that is set under the ``if`` is read outside, other than to report it."""
    code, branch = found.code, found.branch
    for name in (one for one in code.nodes(ast.Name, branch) if isinstance(one.ctx, ast.Store)):
        for bound in code.bindings(name, name.id)[:1]:
            for read in code.references(bound):
                call = code.above(read, ast.Call)
                reported = call is not None and _REPORTS.search(last_name(call.func))
                reads = isinstance(read.ctx, ast.Load) or isinstance(code.parents[read], ast.AugAssign)
                if reads and not code.holds(branch, read) and not reported:
                    raise Cannot.at(f"{name.id} is set under the same `if` and read here", found.code, read)


# -- how often it is left ------------------------------------------------------------------------------------


def _leaves_some(plan: Plan, found: _Condition, times: int, factor: int) -> None:
    """Raises Cannot where the count does not get as far as N would be; says so where that is not known."""
    code, count = found.code, counted(found.code, found.part.left)
    loop = next(iter(loops_around(code, found.branch)), None)
    own = counter(code, loop)  # begins anew with every pass
    inner = own is not None and own.id == last_name(count) and "epoch" not in own.id.lower()
    passes = max(plan.scene.passes, 1) if inner else 1
    if not times:
        every = code.source(found.part.right)
        plan.remark(f"{plan.remedy}: look that {code.source(count)} still gets to {factor} times {every}")
    elif times < factor * passes:
        each = "" if passes == 1 else f" in {passes} passes"
        words = f"it was done {times} times in the run{each}: {factor} times as rarely is never"
        raise Cannot.at(words, found.code, found.branch, write="take a smaller number, or none")
