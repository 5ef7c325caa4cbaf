"""Loops that reach into a tensor element by element: each access goes through torch's dispatcher."""

from __future__ import annotations

import ast
import re
from textwrap import dedent
from typing import Final

from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.source import function_text, loops_around, text_of
from hotloop.findings import Place

REMEDY: Final = "numpy-view"
#: What to do besides, where that remedy is named.
ADVICE: Final = " Single elements that are plain numbers hotloop fix sends through a numpy view (numpy-view)."
_MADE: Final = re.compile(
    r"\btorch\.(zeros|ones|empty|full|rand|randn)\(|\b(Float|Double|Long|Int|Bool)Tensor\("
)


def by_elements(evidence: Evidence, place: Place | None) -> tuple[str, ...]:
    """The remedy of a line in a loop that writes, or reads, single elements of a tensor; () for others."""
    if place is None:
        return ()
    loop = next(iter(loops_around(evidence, place)), None)
    if loop is None:
        return ()
    try:
        tree = ast.parse(dedent(loop.text))
        around = ast.parse(dedent(function_text(evidence, place) or text_of(evidence, place.file)))
    except SyntaxError:
        return ()
    made = {
        target.id
        for node in ast.walk(around)
        if isinstance(node, ast.Assign) and _MADE.search(ast.unparse(node.value))
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    found = any(_is_read(node) or _is_written(node, made) for node in ast.walk(tree))
    return (REMEDY,) if found else ()


def _is_written(node: ast.AST, made: set[str]) -> bool:
    """``heat[b, y, x] = value`` of a tensor that the function makes."""
    targets = (
        node.targets if isinstance(node, ast.Assign)
        else [node.target] if isinstance(node, ast.AugAssign) else []
    )  # fmt: skip
    return any(
        isinstance(one, ast.Subscript)
        and isinstance(one.value, ast.Name)
        and one.value.id in made
        and _is_element(one.slice)
        for one in targets
    )


def _is_read(node: ast.AST) -> bool:
    """``x[i, j].item()``, ``float(x[i, j])``"""
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute):
        return node.func.attr == "item" and _is_in_a_tensor(node.func.value)
    named = isinstance(node.func, ast.Name) and node.func.id in ("float", "int")
    return named and len(node.args) == 1 and _is_in_a_tensor(node.args[0])


def _is_in_a_tensor(node: ast.AST) -> bool:
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) and _is_element(node.slice)


def _is_element(index: ast.expr) -> bool:
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return not any(isinstance(one, ast.Slice | ast.List) or _is_key(one) for one in parts)


def _is_key(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not isinstance(node.value, int)
