"""Lines that make many tensors, one of each row, and put them together."""

from __future__ import annotations

import ast
from typing import Final

from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.source import text_of
from hotloop.findings import Place

REMEDY: Final = "batched-convert"
#: What to do besides, where that remedy is named.
ADVICE: Final = (
    " Rows that are made tensors one by one hotloop fix converts at once (--apply batched-convert)."
)
_CONVERTS: Final = ("tensor", "as_tensor", "FloatTensor", "DoubleTensor", "LongTensor")
_JOINS: Final = ("stack", "cat", "concat", "concatenate")
_COMPREHENSIONS = ast.ListComp | ast.GeneratorExp


def by_rows(evidence: Evidence, place: Place | None) -> tuple[str, ...]:
    """The remedy of a line that makes one tensor of arrays, or in a function that makes one of each row."""
    if place is None:
        return ()
    try:
        tree = ast.parse(text_of(evidence, place.file))
    except SyntaxError:
        return ()
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.lineno <= place.line <= (node.end_lineno or 0)
    ]
    scope = max(around, key=lambda node: node.lineno) if around else tree
    calls = [node for node in _within(scope) if isinstance(node, ast.Call)]
    here = [call for call in calls if call.lineno <= place.line <= (call.end_lineno or 0)]
    appended = {ast.unparse(call.func.value) for call in calls if _appends(call)}  # type: ignore[attr-defined]
    joined = {ast.unparse(call.args[0]) for call in calls if _name(call.func) in _JOINS and call.args}
    found = bool(appended & joined) or any(map(_joins_rows, calls)) or any(map(_takes_rows, here))
    return (REMEDY,) if found else ()


def _within(scope: ast.AST) -> list[ast.AST]:
    """What a scope does itself: of a module what stands in none of its functions."""
    if not isinstance(scope, ast.Module):
        return list(ast.walk(scope))
    ahead, found = list(scope.body), []
    while ahead:
        node = ahead.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        found.append(node)
        ahead += ast.iter_child_nodes(node)  # type: ignore[arg-type]
    return list(found)


def _joins_rows(call: ast.Call) -> bool:
    """``torch.stack([torch.tensor(row) for row in rows])``"""
    if _name(call.func) not in _JOINS or not call.args:
        return False
    rows = call.args[0]
    if isinstance(rows, ast.Call) and _name(rows.func) in ("list", "tuple") and len(rows.args) == 1:
        rows = rows.args[0]
    if isinstance(rows, _COMPREHENSIONS):
        return any(isinstance(one, ast.Call) and _converts(one) for one in ast.walk(rows.elt))
    mapped = isinstance(rows, ast.Call) and _name(rows.func) == "map" and len(rows.args) == 2
    return mapped and isinstance(rows, ast.Call) and _name(rows.args[0]) in _CONVERTS


def _appends(call: ast.Call) -> bool:
    """``rows.append(torch.tensor(row))``"""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "append" or len(call.args) != 1:
        return False
    return any(isinstance(one, ast.Call) and _converts(one) for one in ast.walk(call.args[0]))


def _takes_rows(call: ast.Call) -> bool:
    """``torch.FloatTensor(states)``"""
    return (
        _converts(call)
        and isinstance(call.func, ast.Attribute)
        and bool(call.args)
        and isinstance(call.args[0], ast.Name | ast.Attribute | ast.ListComp)
    )


def _converts(call: ast.Call) -> bool:
    return _name(call.func) in _CONVERTS


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
