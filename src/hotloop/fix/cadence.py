"""What stands under ``if step % N == 0`` done more rarely: N multiplied where it is written."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hotloop.diagnose.intervals import What, asks
from hotloop.findings import Place
from hotloop.fix.callers import only_caller
from hotloop.fix.conditions import counted, counter, ifs_around, remainders, zeros
from hotloop.fix.follow import Entry, Follower, Literal
from hotloop.fix.plan import Plan
from hotloop.fix.readers import readers
from hotloop.fix.scene import Cannot
from hotloop.measure.places import Frame
from hotloop.source.code import Code
from hotloop.source.flow import binds, loops_around
from hotloop.source.nodes import FUNCTIONS, last_name, targets_of
from hotloop.source.tokens import atom, tokens_of
from hotloop.source.values import keys_of
from hotloop.torch_facts import INTERVAL, meaning_of

#: Where the finding asks for no other number.
_USUAL: Final = 4
#: How many functions are left behind on the way to the ``if``.
_CALLERS: Final = 2
#: Calls that change what is trained, or with what.
_TRAINS: Final = frozenset([
    "step", "backward", "zero_grad", "unscale_", "clip_grad_norm_", "clip_grad_value_", "update_parameters",
    "load_state_dict", "manual_seed", "set_epoch", "copy_", "lerp_", "requires_grad_",
])  # fmt: skip
#: Models that follow the one that is trained: ``ema.update(model)``, ``update_target(...)``.
_AVERAGES: Final = re.compile(r"(?i)(ema|swa|teacher|target)\w*\.update|update_(ema|swa|teacher|target)")
#: Calls that only report what they are given, and those that make words or a number of it.
_REPORTS: Final = re.compile(
    r"^(print|write|set_postfix\w*|set_description\w*|log(_\w+)?|add_(scalars?|text|hparams)|info|debug"
    r"|warning|critical|track|str|format|float|int|round|item|len|join|dict)$"
)


@dataclass(frozen=True, kw_only=True)
class _Condition:
    """``if COUNT % EVERY == 0``, and the calls of the run that led there."""

    code: Code
    branch: ast.If
    part: ast.BinOp
    frames: tuple[Frame, ...]

    def cannot(self, why: str, node: ast.AST | None = None, write: str = "") -> Cannot:
        """What a change is not made for, with the line of a node."""
        return Cannot(why, str(self.code.path), self.code.line(node or self.branch), write=write)


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
    _multiply(plan, found, factor)
    code, body = found.code, found.branch.body
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
    """The innermost ``if`` with a remainder around a line, or around the only call of its function."""
    code = plan.scene.code(place.file)
    frames = next(iter(plan.scene.through(place)), ())
    node: ast.AST | None = next(reversed(code.at_line(place.line)), None)
    for _ in range(_CALLERS + 1):
        if node is None:
            break
        for branch, inside in ifs_around(code, node):
            parts = remainders(code, branch.test)
            if not parts:
                continue
            found = _Condition(code=code, branch=branch, part=parts[0], frames=frames)
            test = code.source(branch.test)
            if not inside:
                raise found.cannot(f"it stands in the else of `if {test}`")
            if len(parts) != 1 or zeros(branch.test) != parts:
                raise found.cannot(f"`if {test}` is no plain `% N == 0`")
            counted(code, parts[0].left)
            return found
        function = code.function_of(node)
        caller = only_caller(plan.scene, code, function) if function is not None else None
        if caller is None:
            break
        code, node = caller
    raise Cannot("no `if ... % N == 0` stands around it", place.file, place.line)


# -- what else it guards -------------------------------------------------------------------------------------


def _guards_only_it(plan: Plan, found: _Condition) -> None:
    """Raises Cannot where more than evaluation, checkpoints and their messages stands under the ``if``."""
    code, branch = found.code, found.branch
    if branch.orelse:
        raise found.cannot("the `if` around it has an else")
    lines = range(code.line(branch.body[0]), code.end(branch)[0] + 1)
    reached = [("training itself", plan.scene.updating)]
    if plan.remedy == "less-frequent-checkpoint":
        reached.append(("an evaluation", plan.scene.scoring))
    for what, frames in reached:
        for frame in frames:
            if frame.file == str(code.path) and frame.line in lines:
                raise Cannot(f"{what} stands under the same `if`", frame.file, frame.line)
    for where, node in _reached(plan, found):
        for call in where.nodes(ast.Call, node):
            if last_name(call.func) in _TRAINS or _AVERAGES.search(where.source(call.func)):
                words = f"{where.source(call.func)}() is done under the same `if`"
                raise Cannot(words, str(where.path), where.line(call))
        for one in where.nodes(ast.Attribute, node):
            if one.attr == "param_groups":
                raise Cannot("the optimizer is changed under the same `if`", str(where.path), where.line(one))
    _ends_nothing(found)
    _changes_nothing(plan, found)


def _reached(plan: Plan, found: _Condition) -> list[tuple[Code, ast.AST]]:
    """What stands under the ``if``, and the user's functions that are called from there by their name."""
    code, branch = found.code, found.branch
    reached: list[tuple[Code, ast.AST]] = [(code, one) for one in branch.body]
    for statement in branch.body:
        for call in code.nodes(ast.Call, statement):
            name, func = last_name(call.func), call.func
            if isinstance(func, ast.Attribute) and code.qualified(func):
                name = ""  # of a library, or of a module of the user's
            for other in plan.scene.codes(name) if name else ():
                for function in other.nodes(FUNCTIONS):
                    is_method = isinstance(other.parents.get(function), ast.ClassDef)
                    named = function.name == name and isinstance(func, ast.Attribute) == is_method
                    if named and not other.holds(function, branch if other is code else function.args):
                        reached.append((other, function))
    return [one for one in reached if one[0] is not code or not code.holds(one[1], branch)]


def _ends_nothing(found: _Condition) -> None:
    """Raises Cannot where a loop, the step or the function around the ``if`` is left under it."""
    code, branch = found.code, found.branch
    for jump in code.nodes((ast.Break, ast.Continue, ast.Return), branch):
        if isinstance(jump, ast.Return):
            if code.function_of(jump) is code.function_of(branch):
                raise found.cannot("its function may be left under the same `if`", jump)
        elif not any(code.holds(branch, loop) for loop in loops_around(code, jump)[:1]):
            what = "training may be ended" if isinstance(jump, ast.Break) else "the step is cut short"
            raise found.cannot(f"{what} under the same `if`", jump)


def _changes_nothing(plan: Plan, found: _Condition) -> None:
    """Raises Cannot where what is set under the ``if`` is read outside of it, other than to report it."""
    code, branch = found.code, found.branch
    grown = {code.source(one.target) for one in code.nodes(ast.AugAssign) if not code.holds(branch, one)}
    for statement in (one for inner in branch.body for one in code.nodes(ast.stmt, inner)):
        if code.function_of(statement) is not code.function_of(branch):
            continue
        for target in targets_of(statement):
            if code.source(target) in grown and isinstance(statement, ast.Assign):
                words = f"{code.source(target)} is begun anew under the same `if`: it would add up more"
                raise found.cannot(words, target)
            for other, read in _reads(plan, code, target):
                inside = other is code and code.holds(branch, read)
                if not inside and not _is_reported(other, read) and not _set_anew(found, other, target, read):
                    words = f"{code.source(target)} is set under the same `if` and read here"
                    raise Cannot(words, str(other.path), other.line(read))


def _reads(plan: Plan, code: Code, target: ast.expr) -> Iterator[tuple[Code, ast.expr]]:
    """Where a name, or an attribute of any object, is read."""
    if isinstance(target, ast.Name):
        for one in code.bindings(target, target.id)[:1]:
            yield from ((code, read) for read in code.references(one))
    elif isinstance(target, ast.Attribute):
        for other in plan.scene.codes(target.attr):
            same = [one for one in other.nodes(ast.Attribute) if one.attr == target.attr]
            yield from ((other, one) for one in same if isinstance(one.ctx, ast.Load))


def _is_reported(code: Code, node: ast.AST) -> bool:
    """Whether a value is given to a call that only reports it."""
    call = code.above(node, ast.Call)
    return call is not None and _REPORTS.search(last_name(call.func)) is not None


def _set_anew(found: _Condition, code: Code, target: ast.expr, read: ast.expr) -> bool:
    """Whether another statement of the loop's body gives a name a value in each round before it is read."""
    if not isinstance(target, ast.Name) or code is not found.code:
        return False
    at, branch = code.span(read)[0], code.span(found.branch)[0]
    for loop in loops_around(code, found.branch)[:1]:
        for one in loop.body:
            start = code.span(one)[0]
            sets = isinstance(one, ast.Assign | ast.With) and target.id in binds(code, one)
            if sets and start < at and not start < branch < at and not code.holds(one, read):
                return True
    return False


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
        raise found.cannot(words, write="take a smaller number, or none")


# -- the number ----------------------------------------------------------------------------------------------


def _multiply(plan: Plan, found: _Condition, factor: int) -> None:
    """At the place it is written, or at the ``if`` alone where it serves others or is computed."""
    code, every = found.code, found.part.right
    follower = Follower(plan.scene, found.frames)
    try:
        target = follower.expression(code, every, follower.frame_of(code, every))
    except Cannot:
        _at_the_if(plan, found, factor)
        return
    old: int | None = None
    keys: tuple[str, ...] = ()
    if isinstance(target, Entry):
        keys = tuple(str(target.note.get("key")).split("."))
        asked = follower.way[-1][2] or keys_of(every)[1]
        if keys == asked or (asked and meaning_of(asked[-1]) == INTERVAL):
            old = _whole(target.note.get("value"))
    elif isinstance(target, Literal):
        old = _whole(target.code.source(target.node))
        plan.scene.unchanged(target.code.path)
    others = readers(plan.scene, follower.way, keys, code, found.branch.test)
    if others:
        where = ", ".join(dict.fromkeys(f"{Path(file).name}:{line}" for file, line in others[:3]))
        plan.remark(f"{plan.remedy}: {code.source(every)} is used at {where} too and stays as it is")
    if old is None or others:
        _at_the_if(plan, found, factor)
    else:
        plan.put(target, "every", old * factor)


def _whole(value: Any) -> int | None:
    try:
        number = int(str(value).strip("'\""), 0) if not isinstance(value, float) else int(value)
    except ValueError:
        return None
    return number if number > 0 else None


def _at_the_if(plan: Plan, found: _Condition, factor: int) -> None:
    code, every = found.code, found.part.right
    text = code.source(every)
    new = f"{text if isinstance(every, ast.Constant) else atom(every, text)} * {factor}"
    new = new if tokens_of(code).outer(every) != code.span(every) else f"({new})"
    plan.replace(code, every, new, f"% {text} → % {new}")
