"""What stands under ``if step % N == 0`` done more rarely: N multiplied where it is written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import libcst as cst

from hotloop.diagnose.intervals import What, asks
from hotloop.findings import Place
from hotloop.measure.places import Frame
from hotloop.probe.config import INTERVAL, meaning_of
from hotloop.remedy.source.callers import only_caller
from hotloop.remedy.source.code import Code, Function, last_name
from hotloop.remedy.source.conditions import counted, ifs_around, remainders, statement_at, zeros
from hotloop.remedy.source.follow import Entry, Follower, Literal
from hotloop.remedy.source.plan import Plan
from hotloop.remedy.source.readers import readers
from hotloop.remedy.source.scene import Cannot
from hotloop.remedy.source.values import chain_of, value_of

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
#: Names of models that follow the one that is trained.
_AVERAGE: Final = re.compile(
    r"(?<![a-z])(ema|swa|teacher|polyak|momentum|soft|shadow|target)(?![a-z])"
    r"|Ema|EMA|SWA|Swa|Teacher|Polyak|Momentum|Shadow|Target|[Aa]verag(?!\w*(meter|Meter|metric|loss))"
)
#: Calls that only tell what they are given.
_TELLS: Final = re.compile(
    r"^(print|write|set_postfix\w*|set_description\w*|log(_\w+)?|add_(scalars?|text|hparams)|info|debug"
    r"|warning|critical|track)$"
)
#: Calls that make words or a plain number of a value.
_SPELLS: Final = frozenset(["str", "format", "float", "int", "round", "item", "len", "join", "dict"])


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
    keyword = _keyword(plan, place)
    if keyword is not None:
        _ask_rarer(plan, keyword, int(value or _USUAL))
        return
    found = _condition(plan, place)
    _guards_only_it(plan, found)
    _leaves_some(plan, found, int(value or _USUAL))
    _multiply(plan, found, int(value or _USUAL))
    code, body = found.code, found.branch.body
    if len(body.body) > 1:
        lines = f"{code.path.name}:{code.line(body.body[0])}-{code.end(body.body[-1])[0]}"
        plan.remark(f"{plan.remedy}: all of {lines} stands under the same `if` and is done less often")


# -- a framework's keyword -----------------------------------------------------------------------------------


def _keyword(plan: Plan, place: Place) -> Literal | None:
    """The number of a keyword at a line that asks a framework for it: ``eval_steps=5``."""
    what: What = "checkpoint" if plan.remedy == "less-frequent-checkpoint" else "evaluation"
    code = plan.scene.code(place.file)
    for call in code.nodes(cst.Call):
        for arg in call.args:
            name = arg.keyword.value if arg.keyword is not None else ""
            if not isinstance(arg.value, cst.Integer) or not asks(what, last_name(call.func), name):
                continue
            if code.line(arg.value) == place.line:
                return Literal(code, arg.value, name)
    return None


def _ask_rarer(plan: Plan, target: Literal, value: int) -> None:
    code, times = target.code, plan.scene.times.get(plan.remedy, 0)
    if times and times < value:
        words = f"it was done {times} times in the run: {value} times as rarely is never"
        raise Cannot(words, str(code.path), code.line(target.node), write="take a smaller number, or none")
    plan.scene.unchanged(code.path)
    plan.put(target, target.name, int(code.source(target.node), 0) * value)


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
    for where, body in _reached(plan, found):
        for call in where.nodes(cst.Call, body):
            if last_name(call.func) in _TRAINS or _averages(where, call):
                words = f"{where.source(call.func)}() is done under the same `if`"
                raise Cannot(words, str(where.path), where.line(call))
        for node in where.nodes(cst.Attribute, body):
            if node.attr.value == "param_groups":
                words = "the optimizer is changed under the same `if`"
                raise Cannot(words, str(where.path), where.line(node))
    _ends_nothing(code, branch)
    for jump in code.nodes(cst.Continue, branch.body):
        loops = [code.above(jump, kind) for kind in (cst.For, cst.While)]
        if not any(loop is not None and code.line(loop) >= first for loop in loops):
            raise Cannot("the step is cut short under the same `if`", file, code.line(jump))
    _closes_nothing(code, branch)
    _changes_nothing(plan, code, branch)


def _reached(plan: Plan, found: _Condition) -> list[tuple[Code, cst.CSTNode]]:
    """What stands under the ``if``, and the user's functions that are called from there."""
    reached: list[tuple[Code, cst.CSTNode]] = [(found.code, found.branch.body)]
    seen: set[cst.CSTNode] = set()
    after = reached
    for _ in range(_DEPTH):
        before, after = after, []
        for code, node in before:
            for call in code.nodes(cst.Call, node):
                for where, function in _called(plan, code, call):
                    if function not in seen and not _runs_it(found, where, function):
                        seen.add(function)
                        after.append((where, function))
        reached = [*reached, *after]
    return reached


def _runs_it(found: _Condition, code: Code, function: Function) -> bool:
    """Whether a function is one that the ``if`` was reached through: ``model.train()`` is no ``train``."""
    start, end = code.span(function)
    lines = {code.line(function), code.line(function.name), *(code.line(d) for d in function.decorators)}
    if code is found.code and start <= code.span(found.branch)[0] < end:
        return True
    first, last = found.code.line(found.branch), found.code.end(found.branch)[0]
    for frame in found.frames:
        if frame.file == str(code.path) and frame.func_line in lines:
            return True
        if frame.file == str(found.code.path) and first <= frame.line <= last:
            break  # what follows is called from there
    return False


def _called(plan: Plan, code: Code, call: cst.Call) -> list[tuple[Code, Function]]:
    """The function of the user's that a call means; of a method that cannot be told, each of its name."""
    name, func = last_name(call.func), call.func
    if isinstance(func, cst.Attribute) and last_name(func.value) in ("self", "cls"):
        owner = code.above(call, cst.ClassDef)
        own = code.nodes(cst.FunctionDef, owner) if owner is not None else ()
        found = [(code, one) for one in own if one.name.value == name]
        if found:
            return found
    else:
        where, meant = Follower(plan.scene, ()).definition(code, func)
        if isinstance(meant, cst.FunctionDef):
            return [(where, meant)]
    if not name or code.qualified(func):
        return []
    if isinstance(func, cst.Name) and not code.assignments(func, name):
        return []  # built in
    return [
        (other, one)
        for other in plan.scene.codes(name)
        for one in other.nodes(cst.FunctionDef)
        if one.name.value == name and isinstance(func, cst.Attribute) == _is_method(other, one)
    ]


def _is_method(code: Code, function: Function) -> bool:
    return isinstance(code.parents.get(code.parents[function]), cst.ClassDef)


def _averages(code: Code, call: cst.Call) -> bool:
    """Whether a call moves an averaged model: ``ema.update(model)``, ``update_ema(...)``."""
    words = code.source(call.func)
    return "update" in last_name(call.func).lower() and _AVERAGE.search(words) is not None


def _ends_nothing(code: Code, branch: cst.If) -> None:
    """Raises Cannot where a loop or the function around the ``if`` is left under it."""
    first, file = code.span(branch)[0], str(code.path)
    for jump in code.nodes(cst.Break, branch.body):
        loops = [one for one in (code.above(jump, cst.For), code.above(jump, cst.While)) if one is not None]
        if not any(code.span(loop)[0] >= first for loop in loops):
            raise Cannot("training may be ended under the same `if`", file, code.line(jump))
    for end in code.nodes(cst.Return, branch.body):
        if code.function_of(end) is code.function_of(branch):
            raise Cannot("its function may be left under the same `if`", file, code.line(end))


def _changes_nothing(plan: Plan, code: Code, branch: cst.If) -> None:
    """Raises Cannot where what is set under the ``if`` is read outside of it, but to be told."""
    for target in _set_in(code, branch.body):
        if code.function_of(target) is not code.function_of(branch):
            continue
        for other, read in _reads(plan, code, target):
            inside = other is code and code.holds(branch.body, read)
            if inside or _is_told(other, read) or (other is code and _set_anew(code, branch, target, read)):
                continue
            words = f"{code.source(target)} is set under the same `if` and read here"
            raise Cannot(words, str(other.path), other.line(read))


def _set_in(code: Code, under: cst.CSTNode) -> Iterator[cst.BaseExpression]:
    """What is bound under a node by a plain statement."""
    targets: list[cst.BaseExpression] = [one.target for one in code.nodes(cst.AssignTarget, under)]
    targets += [one.target for one in code.nodes(cst.AugAssign, under)]
    targets += [one.target for one in code.nodes(cst.AnnAssign, under)]
    while targets:
        target = targets.pop(0)
        if isinstance(target, cst.Tuple | cst.List):
            targets += [one.value for one in target.elements]
        elif isinstance(target, cst.Name | cst.Attribute | cst.Subscript):
            yield target


def _reads(plan: Plan, code: Code, target: cst.BaseExpression) -> Iterator[tuple[Code, cst.CSTNode]]:
    """Where a name, an attribute of any object, or a subscript as it is spelled is read."""
    if isinstance(target, cst.Name):
        nodes = {access.node for one in code.assignments(target, target.value) for access in one.references}
        yield from ((code, node) for node in sorted(nodes, key=code.begin) if not _is_set(code, node))
        return
    if isinstance(target, cst.Attribute):
        for other in plan.scene.codes(target.attr.value):
            for node in other.nodes(cst.Attribute):
                if node.attr.value == target.attr.value and not _is_set(other, node):
                    yield other, node
        return
    for one in code.nodes(cst.Subscript):
        if code.source(one) == code.source(target) and not _is_set(code, one):
            yield code, one


def _is_set(code: Code, node: cst.CSTNode) -> bool:
    above = code.parents.get(node)
    if isinstance(above, cst.AssignTarget):
        return True
    if isinstance(above, cst.AnnAssign):
        return above.target is node
    return isinstance(above, cst.Element) and isinstance(
        code.parents.get(code.parents[above]), cst.AssignTarget
    )


def _is_told(code: Code, node: cst.CSTNode) -> bool:
    """Whether a value is given to a call that only tells it."""
    call = code.above(node, cst.Call)
    while call is not None and last_name(call.func) in _SPELLS:
        call = code.above(call, cst.Call)
    if call is None or code.qualified(call.func).partition(".")[0] in ("torch", "math", "numpy"):
        return False
    return _TELLS.search(last_name(call.func)) is not None


def _set_anew(code: Code, branch: cst.If, target: cst.BaseExpression, read: cst.CSTNode) -> bool:
    """Whether a name holds another value by the time it is read, on every way from the ``if``."""
    if not isinstance(target, cst.Name):
        return False
    at, after = code.span(read)[0], code.span(branch)[1]
    if code.function_of(read) is not code.function_of(branch):
        return False
    since = after if at >= after else _begin_of_round(code, branch, read)
    if since is None:
        return True  # it is read before, and never again
    for one in code.assignments(target, target.value):
        statement = code.statement_of(one.node)
        whole = isinstance(statement, cst.SimpleStatementLine | cst.For | cst.With)
        if statement is None or not whole or not since <= code.span(statement)[0]:
            continue
        earlier = code.span(one.node)[0] < at and not _within(code, read, statement)
        if earlier and _block_holds(code, statement, read):
            return True
    return False


def _within(code: Code, read: cst.CSTNode, statement: cst.CSTNode) -> bool:
    """Whether a read is part of the plain statement that binds: ``tau = tau * 2``, ``tau += 1``."""
    return isinstance(statement, cst.SimpleStatementLine) and code.holds(statement, read)


def _begin_of_round(code: Code, branch: cst.If, read: cst.CSTNode) -> int | None:
    """Where the innermost loop around both begins."""
    inner: cst.CSTNode | None = code.parents.get(branch)
    while inner is not None and not isinstance(inner, cst.FunctionDef):
        if isinstance(inner, cst.For | cst.While):
            start, end = code.span(inner)
            if start <= code.span(read)[0] < end:
                return start
        inner = code.parents.get(inner)
    return None


def _block_holds(code: Code, statement: cst.CSTNode, read: cst.CSTNode) -> bool:
    """Whether a statement runs in each way to a read behind it: it stands in a block around it."""
    block = code.parents.get(statement)
    around: cst.CSTNode | None = read
    if isinstance(statement, cst.For | cst.With):
        start, end = code.span(statement.body)
        if start <= code.span(read)[0] < end:
            return True  # its target
        if isinstance(statement, cst.For):
            return False
    while around is not None:
        if around is block:
            return True
        around = code.parents.get(around)
    return False


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


# -- how often it is left ------------------------------------------------------------------------------------


def _leaves_some(plan: Plan, found: _Condition, value: int) -> None:
    """Raises Cannot where the count does not get as far as N would be; says so where that is not known."""
    code, times = found.code, plan.scene.times.get(plan.remedy, 0)
    count = counted(code, found.part.left)
    passes = _counts_of(plan, code, count)
    if times and passes:
        if times < value * passes:
            each = "" if passes == 1 else f" in {passes} passes"
            words = f"it was done {times} times in the run{each}: {value} times as rarely is never"
            raise Cannot(
                words, str(code.path), code.line(found.branch), write="take a smaller number, or none"
            )
        return
    every = code.source(found.part.right)
    plan.remark(f"{plan.remedy}: look that {code.source(count)} still gets to {value} times {every}")


def _counts_of(plan: Plan, code: Code, count: cst.BaseExpression) -> int:
    """How often a counter began at its start in the run, 0 where that is not known."""
    if not isinstance(count, cst.Name):
        return 1
    passes = plan.scene.passes
    for one in code.assignments(count, count.value):
        if isinstance(one.node, cst.Param):
            return 1 if passes == 1 or "epoch" in count.value.lower() else 0
        loop = code.above(one.node, cst.For)
        is_its = loop is not None and code.span(one.node)[0] < code.span(loop.body)[0]
        if loop is None or not is_its:
            if isinstance(value_of(code, one.node), cst.Integer) and _is_begun_anew(code, one.node, count):
                return passes
            continue
        outer: cst.For | None = loop
        while outer is not None and (outer := code.above(outer, cst.For)) is not None:
            if code.function_of(outer) is code.function_of(loop):
                return passes
        if any(last_name(call.func) == "enumerate" for call in code.nodes(cst.Call, loop.iter)):
            return passes
    return 1


def _is_begun_anew(code: Code, bound: cst.CSTNode, count: cst.CSTNode) -> bool:
    """Whether a counter is set back with each pass: in a loop, or in a function that makes one pass."""
    function = code.function_of(bound)
    return bool(_loops(code, bound)) or (function is not None and len(_loops(code, count)) == 1)


def _loops(code: Code, node: cst.CSTNode) -> list[cst.CSTNode]:
    """The loops around a node in its function."""
    found: list[cst.CSTNode] = []
    above = code.parents.get(node)
    while above is not None and not isinstance(above, cst.FunctionDef):
        if isinstance(above, cst.For | cst.While):
            found.append(above)
        above = code.parents.get(above)
    return found


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
