"""``if step % N == 0``: the tests that let a statement run each Nth time, and what is counted there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from hotloop.fix.scene import Cannot
from hotloop.source.code import Code
from hotloop.source.flow import loops_around
from hotloop.source.nodes import DEFINITIONS, last_name, targets_of
from hotloop.source.values import value

#: How many calls may stand around what is iterated over.
_WRAPPED: Final = 4
_RANGES: Final = frozenset(["range", "trange"])


def remainders(code: Code, test: ast.AST) -> list[ast.BinOp]:
    """Every ``X % N`` in a test; formatting of text is none."""
    found = [one for one in code.nodes(ast.BinOp, test) if isinstance(one.op, ast.Mod)]
    return [one for one in found if not isinstance(one.left, ast.Constant | ast.JoinedStr)]


def zeros(test: ast.expr) -> list[ast.BinOp]:
    """The parts of a test that hold where their ``X % N`` is 0; joined by ``and`` or ``or``."""
    if isinstance(test, ast.BoolOp):
        return [found for one in test.values for found in zeros(one)]
    sides: list[ast.expr] = []
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        sides = [test.operand]
    elif isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
        both = [test.left, test.comparators[0]]
        sides = both if any(isinstance(one, ast.Constant) and one.value == 0 for one in both) else []
    return [one for one in sides if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mod)]


def ifs_around(code: Code, node: ast.AST, limit: ast.AST | None = None) -> Iterator[tuple[ast.If, bool]]:
    """The ``if`` statements around a node in its function, or in the loop ``limit``, innermost first; whether
    it stands in the body, and not in what follows ``else``.
    """
    inner = node
    for outer in code.ancestors(node):
        if outer is limit or isinstance(outer, DEFINITIONS):
            return
        if isinstance(outer, ast.If) and inner is not outer.test:
            yield outer, inner in outer.body
        inner = outer


def counter(code: Code, loop: ast.AST | None) -> ast.Name | None:
    """The integer that a ``for`` counts with: of ``enumerate(...)`` or ``range(...)``."""
    if not isinstance(loop, ast.For):
        return None
    call: ast.AST = _made(code, loop.iter)
    for _ in range(_WRAPPED):
        if isinstance(call, ast.Call) and last_name(call.func) not in {"enumerate", *_RANGES} and call.args:
            call = _made(code, call.args[0])  # tqdm(enumerate(loader))
    if not isinstance(call, ast.Call):
        return None
    target: ast.expr = loop.target
    if last_name(call.func) == "enumerate":
        if not isinstance(target, ast.Tuple) or len(target.elts) != 2:
            return None
        target = target.elts[0]
    elif last_name(call.func) not in _RANGES or len(call.args) > 2:
        return None
    again = [one for one in code.nodes(ast.AST, loop) if one is not loop for one in targets_of(one)]
    bound = any(last_name(one) == last_name(target) for one in again)
    return target if isinstance(target, ast.Name) and not bound else None


def _made(code: Code, node: ast.AST) -> ast.AST:
    """What a name stands for, where it is given one value only."""
    found = value(code, node) if isinstance(node, ast.Name) else None
    return found if found is not None and not isinstance(found, ast.Name) else node


def counted(code: Code, node: ast.expr) -> ast.expr:
    """What counts steps or epochs in what is divided. Raises Cannot where that is not known."""
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        if not isinstance(node.right, ast.Constant):
            break
        node = node.left
    if any(counts_in(code, node, loop) for loop in [*loops_around(code, node), None]):
        return node
    raise Cannot.at(f"what {code.source(node)} counts is not known", code, node)


def counts_in(code: Code, node: ast.expr, loop: ast.AST | None) -> bool:
    """Whether a plain name or attribute is one more in each round of a loop: its counter, or by ``+= 1``, or
    computed in it; without a loop a parameter may be.
    """
    name = last_name(node)
    found = counter(code, loop)
    if not name or (found is not None and found.id == name):
        return bool(name)
    added = [one for one in code.nodes(ast.AugAssign) if last_name(one.target) == name]
    if added or not isinstance(node, ast.Name):
        return bool(added) and all(
            isinstance(one.op, ast.Add) and code.source(one.value) == "1" for one in added
        )
    bound = code.bindings(node, name)
    if loop is None:
        return bool(bound) and all(isinstance(one.node, ast.arg) for one in bound)
    computed = [one.value for one in bound if code.holds(loop, one.node)]
    return any(isinstance(one, ast.BinOp) and not isinstance(one.op, ast.Div) for one in computed)
