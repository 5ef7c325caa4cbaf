"""Loops over batches: the one around given lines, parts of a batch never read."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from hotloop.source.code import Code
from hotloop.source.flow import loops_around
from hotloop.source.nodes import LOOPS, Loop

#: Whoever calls one of these may read any variable.
_READ_ALL = frozenset(["locals", "vars", "globals", "eval", "exec"])


def loop_around(code: Code, lines: Sequence[int]) -> Loop | None:
    """The innermost loop of one function that all the lines stand in, its head among them."""
    shared: list[Loop] | None = None
    for line in lines:
        around = _around(code, line)
        shared = around if shared is None else [loop for loop in shared if loop in around]
    return shared[0] if shared else None


def _around(code: Code, line: int) -> list[Loop]:
    statements = code.at_line(line)
    if not statements:
        return []
    own = [statements[-1]] if isinstance(statements[-1], LOOPS) else []
    return [*own, *loops_around(code, statements[-1])]


def unread_parts(code: Code, function: ast.AST, line: int) -> set[str]:
    """Positions in the batch whose variable a function never reads: ``for x, y, extra in loader``."""
    heads = [one for one in code.nodes(ast.For, function) if one.lineno <= line <= (one.iter.end_lineno or 0)]
    loaded = {one.id for one in code.nodes(ast.Name, function) if isinstance(one.ctx, ast.Load)}
    if not heads or loaded & _READ_ALL:
        return set()
    target = _unpacked(code, heads[-1], _batch_target(heads[-1]))
    if not isinstance(target, ast.Tuple | ast.List) or any(isinstance(e, ast.Starred) for e in target.elts):
        return set()
    return {str(i) for i, e in enumerate(target.elts) if isinstance(e, ast.Name) and e.id not in loaded}


def _batch_target(head: ast.For) -> ast.expr | None:
    """The variable that takes the batch: inside ``enumerate`` the second; None where unclear."""
    iterated = head.iter
    if isinstance(iterated, ast.Call):
        name = iterated.func.id if isinstance(iterated.func, ast.Name) else ""
        if name == "enumerate":
            target = head.target
            return target.elts[1] if isinstance(target, ast.Tuple) and len(target.elts) == 2 else None
        if name == "zip":
            return None
    return head.target


def _unpacked(code: Code, head: ast.For, target: ast.expr | None) -> ast.expr | None:
    """``a, b, c`` of ``a, b, c = batch`` where that is all that is done with the loop variable."""
    if not isinstance(target, ast.Name):
        return target
    uses = [n for part in head.body for n in code.nodes(ast.Name, part) if n.id == target.id]
    above = code.parents.get(uses[0]) if len(uses) == 1 else None
    single = isinstance(above, ast.Assign) and above.value is uses[0] and len(above.targets) == 1
    return above.targets[0] if isinstance(above, ast.Assign) and single else None
