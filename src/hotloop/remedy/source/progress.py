"""Progress bars that are drawn less often."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import libcst as cst

from hotloop.remedy.source.calls import calls_in
from hotloop.remedy.source.code import Code, argument, has_spread, last_name
from hotloop.remedy.source.plan import Plan
from hotloop.remedy.source.scene import Cannot

_BARS: Final = ("tqdm", "trange")
#: What draws a bar anew, and where ``refresh`` stands among the arguments.
_DRAW: Final = {"set_postfix": 1, "set_postfix_str": 1, "set_description": 1, "set_description_str": 1}


def throttled_progress(plan: Plan, value: Any) -> None:
    """``tqdm(..., mininterval=1.0)``; what a bar shows is set without drawing it."""
    found = 0
    for code, call in calls_in(plan):
        if has_spread(call):
            continue
        if _is_bar(code, call):
            given = argument(call, "mininterval")
            if given is None or _below_a_second(code.source(given)):
                plan.keyword(code, call, "mininterval", "1.0")
                found += 1
        elif _draws(code, call):
            given = argument(call, "refresh", _DRAW[last_name(call.func)])
            if given is None:
                plan.keyword(code, call, "refresh", "False")
            elif code.source(given) == "True":
                plan.replace(code, given, "False", "refresh: True → False")
            found += given is None or code.source(given) == "True"
    if not found:
        raise Cannot("no bar of tqdm that could be drawn less often stands in your code")


def _is_bar(code: Code, call: cst.Call) -> bool:
    package, _, name = code.qualified(call.func).rpartition(".")
    return package.partition(".")[0] == "tqdm" and name in _BARS


def _below_a_second(source: str) -> bool:
    try:
        return float(source) < 1.0
    except ValueError:
        return False


def _draws(code: Code, call: cst.Call) -> bool:
    """Whether a method of a bar that goes on draws it: of what a name was bound to in the same function."""
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value not in _DRAW:
        return False
    receiver, function = code.source(call.func.value), code.above(call, cst.FunctionDef)
    return _moves(code, call.func.value) and any(
        code.source(target) == receiver
        and (isinstance(target, cst.Attribute) or code.above(target, cst.FunctionDef) is function)
        for target in _bars(code)
    )


def _moves(code: Code, bar: cst.BaseExpression) -> bool:
    """Whether a bar is drawn anew by itself: a ``for`` goes over it, or it is updated."""
    name, function = code.source(bar), code.function_of(bar)
    shown = [loop.iter for loop in code.nodes(cst.For)]
    shown += [
        call.func.value
        for call in code.nodes(cst.Call)
        if isinstance(call.func, cst.Attribute) and call.func.attr.value == "update"
    ]
    return any(
        code.source(node) == name and (isinstance(node, cst.Attribute) or code.function_of(node) is function)
        for one in shown
        for node in code.nodes(cst.BaseExpression, one)  # type: ignore[type-abstract]
    )


def _bars(code: Code) -> Iterator[cst.BaseExpression]:
    """What bars are bound to: ``bar = tqdm(...)``, ``with tqdm(...) as bar``."""
    for call in code.nodes(cst.Call):
        if not _is_bar(code, call):
            continue
        parent = code.parents[call]
        if isinstance(parent, cst.Assign):
            yield from (one.target for one in parent.targets)
        elif isinstance(parent, cst.NamedExpr | cst.AnnAssign):
            yield parent.target
        elif isinstance(parent, cst.WithItem) and parent.asname is not None:
            yield parent.asname.name
