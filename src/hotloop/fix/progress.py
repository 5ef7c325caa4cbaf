"""Progress bars that are drawn less often."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from typing import Any, Final

from hotloop.fix.calls import calls_in
from hotloop.fix.plan import Plan
from hotloop.fix.scene import Cannot
from hotloop.source.code import Code
from hotloop.source.nodes import argument, has_spread, targets_of

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


def _is_bar(code: Code, call: ast.Call) -> bool:
    package, _, name = code.qualified(call.func).rpartition(".")
    return package.partition(".")[0] == "tqdm" and name in _BARS


def _below_a_second(source: str) -> bool:
    try:
        return float(source) < 1.0
    except ValueError:
        return False


def _draws(code: Code, call: ast.Call, by: Collection[str]) -> bool:
    """Whether a method draws a bar: of a name that one was bound to in the function, or ``self.NAME``."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in by:
        return False
    bar = call.func.value
    scope = code.function_of(call) if isinstance(bar, ast.Name) else None
    return any(code.source(one) == code.source(bar) for one in _bars(code, scope))


def _bars(code: Code, scope: ast.AST | None) -> Iterator[ast.expr]:
    """What bars are bound to: ``bar = tqdm(...)``, ``with tqdm(...) as bar``."""
    for call in code.nodes(ast.Call, scope):
        if _is_bar(code, call):
            above = code.parents[call]
            yield from targets_of(above)
            if isinstance(above, ast.withitem) and above.optional_vars is not None:
                yield above.optional_vars
