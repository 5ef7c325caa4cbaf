"""Rows that are made tensors one by one and stacked, through ``hotloop.feed.stacked`` in one conversion.

``torch.stack([torch.tensor(row, dtype=...) for row in rows])`` is the one shape that is written. What kind
the rows are of shows in no source: ``stacked`` looks, and leaves to torch what only torch knows.
"""

from __future__ import annotations

import ast
from typing import Any, Final

from hotloop.fix.feeds import imported
from hotloop.fix.plan import Plan
from hotloop.fix.scene import Already, Cannot
from hotloop.source.code import Code
from hotloop.source.nodes import FUNCTIONS
from hotloop.source.tokens import tokens_of

ID: Final = "batched-convert"
#: What makes a tensor of a row. ``torch.from_numpy`` costs little more than the copying.
_CONVERTS: Final = frozenset(
    f"torch.{name}" for name in ("tensor", "as_tensor", "FloatTensor", "DoubleTensor", "LongTensor")
)
_OPTIONS: Final = frozenset(["dtype", "device"])


def batched_convert(plan: Plan, value: Any) -> None:
    """Every place in the function that the finding names where rows are converted. Raises Cannot."""
    place = plan.scene.where.get(ID)
    if place is None:
        raise Cannot("no finding names rows that are converted one by one")
    code = plan.scene.code(place.file)
    scopes = [one for one in code.nodes(FUNCTIONS) if one.lineno <= place.line <= code.end(one)[0]]
    scope: ast.AST = scopes[-1] if scopes else code.module
    function = scopes[-1] if scopes else None
    refused: list[Cannot] = []
    written = 0
    for call in code.nodes(ast.Call, scope):
        if code.qualified(call.func) != "torch.stack" or code.function_of(call) is not function:
            continue
        try:
            _write(plan, code, call)
            written += 1
        except Cannot as cannot:
            refused.append(cannot)
    if written:
        for one in refused:
            plan.remark(f"{code.path.name}:{one.line} is left as it is: {one.why}")
        return
    if refused:
        raise min(refused, key=lambda one: abs(one.line - place.line))
    if any(code.qualified(call.func) == "hotloop.feed.stacked" for call in code.nodes(ast.Call, scope)):
        raise Already("the rows are converted at once already", str(code.path), place.line)
    raise Cannot("no rows are made tensors and stacked here", str(code.path), place.line)


def _write(plan: Plan, code: Code, call: ast.Call) -> None:
    """``stacked(torch.tensor, rows, dtype=...)`` in place of one call of ``torch.stack``. Raises Cannot."""

    def cannot(why: str) -> Cannot:
        return Cannot(why, str(code.path), code.line(call))

    made = call.args[0] if call.args else None
    if not isinstance(made, ast.ListComp) or len(made.generators) != 1:
        raise cannot("what is stacked is no list comprehension over rows")
    if len(call.args) > 1 or any(
        one.arg != "dim" or not isinstance(one.value, ast.Constant) or one.value.value != 0
        for one in call.keywords
    ):
        raise cannot("it is stacked along another dimension, or into a tensor that is given")
    convert, each = made.elt, made.generators[0]
    if not isinstance(convert, ast.Call) or code.qualified(convert.func) not in _CONVERTS:
        raise cannot(f"{code.source(convert)} is more than one conversion of a row")
    if len(convert.args) != 1 or isinstance(convert.args[0], ast.Starred):
        raise cannot("the conversion is not given one row")
    own = {one.id for one in code.nodes(ast.Name, each.target)}
    for option in convert.keywords:
        names = {one.id for one in code.nodes(ast.Name, option.value)}
        if option.arg not in _OPTIONS or names & own:
            raise cannot(f"{option.arg} is no option of all rows together")
    if tokens_of(code).has_comment(*code.span(call)):
        raise cannot("a comment stands in it")
    given = [code.source(convert.func), _rows(code, convert.args[0], made)]
    given += [code.source(option) for option in convert.keywords]
    name = imported(plan, code, "stacked")
    says = f"rows that {code.source(convert.func)} converts one by one → hotloop.feed.stacked"
    plan.replace(code, call, f"{name}({', '.join(given)})", says)


def _rows(code: Code, row: ast.expr, made: ast.ListComp) -> str:
    """The rows: what is gone through, or a generator where each is computed."""
    each = made.generators[0]
    plain = isinstance(row, ast.Name) and isinstance(each.target, ast.Name) and row.id == each.target.id
    if plain and not each.ifs:
        return tokens_of(code).enclosed(each.iter)
    start, end = code.span(made.elt)[1], code.span(made)[1] - 1
    words = " ".join(code.text.text[start:end].split())
    return f"({' '.join(tokens_of(code).enclosed(row).split())} {words})"
