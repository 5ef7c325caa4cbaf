"""Progress bars that are drawn less often."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

import libcst as cst

from hotloop.remedy.source.calls import calls_in
from hotloop.remedy.source.code import Code, argument, has_spread
from hotloop.remedy.source.plan import Plan
from hotloop.remedy.source.scene import Cannot

_BARS: Final = ("tqdm", "trange")
#: What draws a bar anew; ``refresh`` is the second argument of each.
_DRAW: Final = ("set_postfix", "set_postfix_str", "set_description", "set_description_str")


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
        elif _draws(code, call, ("refresh",)):
            where = f"{code.path.name}:{code.line(call)}"
            plan.remark(f"{plan.remedy}: {where} still draws the bar: take {code.source(call)} out")
        elif _draws(code, call, _DRAW):
            given = argument(call, "refresh", 1)
            if given is None:
                plan.keyword(code, call, "refresh", "False")
                found += 1
            elif code.source(given) == "True":
                plan.replace(code, given, "False", "refresh: True → False")
                found += 1
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


def _draws(code: Code, call: cst.Call, by: Collection[str]) -> bool:
    """Whether a method of a bar that goes on draws it: of what a name was bound to in the same function."""
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value not in by:
        return False
    bar = call.func.value
    return _moves(code, bar) and any(_is_same(code, bar, target) for target in _bars(code))


def _moves(code: Code, bar: cst.BaseExpression) -> bool:
    """Whether a bar is drawn anew by itself: a ``for`` goes over it, or it is updated."""
    shown = [loop.iter for loop in code.nodes(cst.For)]
    shown += [
        call.func.value
        for call in code.nodes(cst.Call)
        if isinstance(call.func, cst.Attribute) and call.func.attr.value == "update"
    ]
    return any(
        _is_same(code, bar, node)
        for one in shown
        for node in code.nodes(cst.BaseExpression, one)  # type: ignore[type-abstract]
    )


def _is_same(code: Code, bar: cst.BaseExpression, node: cst.BaseExpression) -> bool:
    """Whether two expressions are spelled alike, names in one function."""
    alike = code.source(node) == code.source(bar)
    return alike and (isinstance(node, cst.Attribute) or code.function_of(node) is code.function_of(bar))


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
