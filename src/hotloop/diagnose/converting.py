"""Lines that make many tensors, one of each row, and put them together."""

from __future__ import annotations

import ast
from typing import Final

from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.source import text_of
from hotloop.findings import Place
from hotloop.written import tree_of

REMEDY: Final = "batched-convert"
#: What to do besides, where that remedy is named.
ADVICE: Final = (
    " Rows that are made tensors one by one hotloop fix converts at once (--apply batched-convert)."
)
_CONVERTS: Final = ("tensor", "as_tensor", "FloatTensor", "DoubleTensor", "LongTensor")
_JOINS: Final = ("stack", "cat", "concat", "concatenate")
_COMPREHENSIONS = ast.ListComp | ast.GeneratorExp


def by_rows(evidence: Evidence, place: Place | None) -> tuple[str, ...]:
    """The remedy of a line that is repeated with one that makes tensors of rows, or makes one of arrays."""
    if place is None:
        return ()
    tree = tree_of(text_of(evidence, place.file))
    if tree is None:
        return ()
    around = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and _holds(node, place.line)
    ]
    scope = max(around, key=lambda node: node.lineno) if around else tree
    nodes = _within(scope)
    loops = [node for node in nodes if isinstance(node, ast.For | ast.While)]
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    joined = {ast.unparse(call.args[0]) for call in calls if _name(call.func) in _JOINS and call.args}
    listed = {name for node in nodes if isinstance(node, ast.Assign) for name in _listed(node)}
    here = _innermost(loops, place.line)
    found = any(
        (_innermost(loops, call.lineno) is here and (_joins_rows(call) or _appends(call, joined)))
        or (_holds(call, place.line) and _takes_rows(call, listed))
        for call in calls
    )
    return (REMEDY,) if found else ()


def _holds(node: ast.FunctionDef | ast.For | ast.While | ast.Call, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or 0)


def _innermost(loops: list[ast.For | ast.While], line: int) -> ast.AST | None:
    return max((loop for loop in loops if _holds(loop, line)), key=lambda loop: loop.lineno, default=None)


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


def _appends(call: ast.Call, joined: set[str]) -> bool:
    """``rows.append(torch.tensor(row))`` of what is put together later."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "append" or len(call.args) != 1:
        return False
    made = any(isinstance(one, ast.Call) and _converts(one) for one in ast.walk(call.args[0]))
    return made and ast.unparse(call.func.value) in joined


def _takes_rows(call: ast.Call, listed: set[str]) -> bool:
    """``torch.FloatTensor(states)`` of a list."""
    if not _converts(call) or not isinstance(call.func, ast.Attribute) or not call.args:
        return False
    rows = call.args[0]
    root = rows.value if isinstance(rows, ast.Attribute) else rows
    return isinstance(rows, ast.ListComp) or (isinstance(root, ast.Name) and root.id in listed)


def _listed(assign: ast.Assign) -> set[str]:
    """The names that ``xs, ys = zip(*batch)``, ``batch = Batch(*zip(*picked))`` or a list is given."""
    zips = any(
        isinstance(one, ast.Call) and _name(one.func) == "zip" and isinstance(one.args[0], ast.Starred)
        for one in ast.walk(assign.value)
        if not isinstance(one, ast.Call) or one.args
    )
    if not zips and not isinstance(assign.value, ast.List | ast.ListComp | ast.Tuple):
        return set()
    return {one.id for target in assign.targets for one in ast.walk(target) if isinstance(one, ast.Name)}


def _converts(call: ast.Call) -> bool:
    return _name(call.func) in _CONVERTS


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
