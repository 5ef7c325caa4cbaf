"""What stands under ``if step % N == 0`` done more rarely: N multiplied where it is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import libcst as cst

from hotloop.findings import Place
from hotloop.measure.places import Frame
from hotloop.probe.config import INTERVAL, meaning_of
from hotloop.remedy.source.callers import only_caller
from hotloop.remedy.source.code import Code, last_name
from hotloop.remedy.source.conditions import counted, ifs_around, remainders, statement_at, zeros
from hotloop.remedy.source.follow import Entry, Follower, Literal
from hotloop.remedy.source.plan import Plan
from hotloop.remedy.source.readers import readers
from hotloop.remedy.source.scene import Cannot
from hotloop.remedy.source.values import chain_of

#: Where the finding asks for no other number.
_USUAL: Final = 4
#: How many functions are left behind on the way to the ``if``.
_CALLERS: Final = 2
#: How far the calls under it are looked into.
_DEPTH: Final = 3
#: Calls that change what is trained, or with what.
_TRAINS: Final = frozenset(
    [
        "step",
        "backward",
        "zero_grad",
        "unscale_",
        "clip_grad_norm_",
        "clip_grad_value_",
        "update_parameters",
        "load_state_dict",
        "manual_seed",
        "set_epoch",
        "copy_",
        "lerp_",
        "requires_grad_",
    ]
)


@dataclass(frozen=True, kw_only=True)
class _Condition:
    """``if COUNT % EVERY == 0``, and the calls of the run that led there."""

    code: Code
    branch: cst.If
    part: cst.BinaryOperation
    frames: tuple[Frame, ...]


def rarer(plan: Plan, value: Any) -> None:
    """N times ``value``, for the ``if`` around the line of the finding."""
    place = plan.scene.where.get(plan.remedy)
    if place is None:
        raise Cannot("no finding of this run says where")
    found = _condition(plan, place)
    _guards_only_it(plan, found)
    _multiply(plan, found, int(value or _USUAL))
    code, body = found.code, found.branch.body
    if len(body.body) > 1:
        lines = f"{code.path.name}:{code.line(body.body[0])}-{code.end(body.body[-1])[0]}"
        plan.remark(f"{plan.remedy}: all of {lines} stands under the same `if` and is done less often")


# -- the way to the condition --------------------------------------------------------------------------------


def _condition(plan: Plan, place: Place) -> _Condition:
    """The innermost ``if`` with a remainder around a line, or around the only call of its function."""
    code = plan.scene.code(place.file)
    frames = next(iter(plan.scene.through(place)), ())
    node: cst.CSTNode | None = statement_at(code, place.line)
    for _ in range(_CALLERS + 1):
        if node is None:
            break
        found = _around(code, node)
        if found is not None:
            branch, part = found
            _counts_one_thing(plan, code, counted(code, part.left))
            return _Condition(code=code, branch=branch, part=part, frames=frames)
        function = code.function_of(node)
        caller = only_caller(plan.scene, code, function) if function is not None else None
        if caller is None:
            break
        code, node = caller
    raise Cannot("no `if ... % N == 0` stands around it", place.file, place.line)


def _counts_one_thing(plan: Plan, code: Code, node: cst.BaseExpression) -> None:
    """Raises Cannot where a counter is handed in from several places: steps by one, epochs by another."""
    bound = code.assignments(node, node.value) if isinstance(node, cst.Name) else []
    function = code.function_of(node)
    if function is not None and any(isinstance(one.node, cst.Param) for one in bound):
        only_caller(plan.scene, code, function)


def _around(code: Code, node: cst.CSTNode) -> tuple[cst.If, cst.BinaryOperation] | None:
    for branch, inside in ifs_around(code, node):
        found = remainders(code, branch.test)
        if not found:
            continue
        file, line, test = str(code.path), code.line(branch), code.source(branch.test)
        if not inside:
            raise Cannot(f"it stands in the else of `if {test}`", file, line)
        if len(found) != 1 or zeros(branch.test) != found:
            raise Cannot(f"`if {test}` is no plain `% N == 0`", file, line)
        return branch, found[0]
    return None


# -- what else it guards -------------------------------------------------------------------------------------


def _guards_only_it(plan: Plan, found: _Condition) -> None:
    """Raises Cannot where more than evaluation, checkpoints and their messages stands under the ``if``."""
    code, branch = found.code, found.branch
    file, line = str(code.path), code.line(branch)
    if branch.orelse is not None:
        raise Cannot("the `if` around it has an else", file, line)
    first, last = code.line(branch.body), code.end(branch.body)[0]
    for frame in plan.scene.updating:
        if frame.file == file and first <= frame.line <= last:
            raise Cannot("training itself stands under the same `if`", file, frame.line)
    for frame in plan.scene.scoring if plan.remedy == "less-frequent-checkpoint" else ():
        if frame.file == file and first <= frame.line <= last:
            raise Cannot("an evaluation stands under the same `if`", file, frame.line)
    for where, call in _calls(plan, code, branch.body, _DEPTH, set()):
        if last_name(call.func) in _TRAINS:
            words = f"{where.source(call.func)}() is done under the same `if`"
            raise Cannot(words, str(where.path), where.line(call))
    for node in code.nodes(cst.Attribute, branch.body):
        if node.attr.value == "param_groups":
            raise Cannot("the optimizer is changed under the same `if`", file, code.line(node))
    for jump in code.nodes(cst.Continue, branch.body):
        loops = [code.above(jump, kind) for kind in (cst.For, cst.While)]
        if not any(loop is not None and code.line(loop) >= first for loop in loops):
            raise Cannot("the step is cut short under the same `if`", file, code.line(jump))
    _closes_nothing(code, branch)


def _calls(
    plan: Plan, code: Code, node: cst.CSTNode, depth: int, seen: set[cst.CSTNode]
) -> Iterator[tuple[Code, cst.Call]]:
    """The calls under a node, and those of the user's functions that they call."""
    for call in code.nodes(cst.Call, node):
        yield code, call
        where, function = _called(plan, code, call)
        if function is not None and function not in seen and depth:
            seen.add(function)
            yield from _calls(plan, where, function, depth - 1, seen)


def _called(plan: Plan, code: Code, call: cst.Call) -> tuple[Code, cst.CSTNode | None]:
    if isinstance(call.func, cst.Attribute) and last_name(call.func.value) in ("self", "cls"):
        owner = code.above(call, cst.ClassDef)
        name = call.func.attr.value
        own = code.nodes(cst.FunctionDef, owner) if owner is not None else ()
        return code, next((one for one in own if one.name.value == name), None)
    where, found = Follower(plan.scene, ()).definition(code, call.func)
    return where, found if isinstance(found, cst.FunctionDef) else None


def _closes_nothing(code: Code, branch: cst.If) -> None:
    """Raises Cannot where a sum that grows in every step is begun anew under the ``if``."""
    function = code.function_of(branch)
    start, end = code.span(branch.body)
    grown = {
        code.source(one.target)
        for one in code.nodes(cst.AugAssign)
        if not start <= code.span(one)[0] < end
        and (isinstance(one.target, cst.Attribute) or code.function_of(one) is function)
    }
    for assign in code.nodes(cst.Assign, branch.body):
        targets = [target.target for target in assign.targets]
        inner = [e.value for one in targets if isinstance(one, cst.Tuple) for e in one.elements]
        for target in (*targets, *inner):
            if code.source(target) in grown:
                words = f"{code.source(target)} is begun anew under the same `if`: it would add up more"
                raise Cannot(words, str(code.path), code.line(assign))


# -- the number ----------------------------------------------------------------------------------------------


def _multiply(plan: Plan, found: _Condition, value: int) -> None:
    """At the place it is written, or at the ``if`` alone where it serves others or is computed."""
    code, every = found.code, found.part.right
    follower = Follower(plan.scene, found.frames)
    try:
        target = follower.expression(code, every, follower.frame_of(code, every))
    except Cannot:
        _at_the_if(plan, found, value)
        return
    old: int | None = None
    keys: tuple[str, ...] = ()
    if isinstance(target, Entry):
        if _is_meant(follower, every, target):
            old = _whole(target.note.get("value"))
        keys = tuple(str(target.note.get("key")).split("."))
    elif isinstance(target, Literal):
        old = _whole(target.code.source(target.node))
        plan.scene.unchanged(target.code.path)
    others = readers(plan.scene, follower.way, keys, code, found.branch.test)
    if others:
        where = ", ".join(dict.fromkeys(f"{Path(file).name}:{line}" for file, line in others[:3]))
        plan.remark(f"{plan.remedy}: {code.source(every)} is used at {where} too and stays as it is")
    if old is None or others:
        _at_the_if(plan, found, value)
    else:
        plan.put(target, "every", old * value)


def _is_meant(follower: Follower, every: cst.BaseExpression, target: Entry) -> bool:
    """Whether a configured value is the one that is read: by all its keys, or by a name that says why."""
    asked = follower.way[-1][2] or chain_of(every)[1]
    key = str(target.note.get("key"))
    return key == ".".join(asked) or (bool(asked) and meaning_of(asked[-1]) == INTERVAL)


def _whole(value: Any) -> int | None:
    try:
        number = int(str(value).strip("'\""), 0) if not isinstance(value, float) else int(value)
    except ValueError:
        return None
    return number if number > 0 else None


def _at_the_if(plan: Plan, found: _Condition, value: int) -> None:
    code, every = found.code, found.part.right
    text = code.source(every)
    plain = isinstance(every, cst.Name | cst.Attribute | cst.Subscript | cst.Call | cst.Integer)
    new = f"{text if plain else f'({text})'} * {value}"
    new = new if getattr(every, "lpar", ()) else f"({new})"
    plan.replace(code, every, new, f"% {text} → % {new}")
