"""``if step % N == 0``: the tests that let a statement run each Nth time, and what is counted there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import libcst as cst
from libcst import metadata as meta

from hotloop.remedy.source.code import Code, last_name
from hotloop.remedy.source.scene import Cannot
from hotloop.remedy.source.values import value_of

_COUNTS: Final = re.compile(r"step|iter|epoch|batch|update|round|episode|tick", re.IGNORECASE)
#: Words of names that number other things.
_NUMBERS: Final = frozenset(
    ["rank", "gpu", "device", "node", "worker", "shard", "process", "proc", "layer", "head", "size", "id"]
)
#: How many functions may stand around what is iterated over.
_WRAPPED: Final = 4
_RANGES: Final = frozenset(["range", "trange"])


def remainders(code: Code, test: cst.BaseExpression) -> list[cst.BinaryOperation]:
    """Every ``X % N`` in a test; formatting of text is none."""
    texts = (cst.SimpleString, cst.FormattedString, cst.ConcatenatedString)
    found = code.nodes(cst.BinaryOperation, test)
    return [n for n in found if isinstance(n.operator, cst.Modulo) and not isinstance(n.left, texts)]


def zeros(test: cst.BaseExpression) -> list[cst.BinaryOperation]:
    """The parts of a test that hold where their ``X % N`` is 0; joined by ``and`` or ``or``."""
    if isinstance(test, cst.BooleanOperation):
        return [*zeros(test.left), *zeros(test.right)]
    sides: tuple[cst.BaseExpression, ...] = ()
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        sides = (test.expression,)
    elif isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
        only = test.comparisons[0]
        both = (test.left, only.comparator)
        zero = any(isinstance(side, cst.Integer) and side.evaluated_value == 0 for side in both)
        sides = both if zero and isinstance(only.operator, cst.Equal) else ()
    return [
        side
        for side in sides
        if isinstance(side, cst.BinaryOperation) and isinstance(side.operator, cst.Modulo)
    ]


def ifs_around(
    code: Code, node: cst.CSTNode, limit: cst.CSTNode | None = None
) -> Iterator[tuple[cst.If, bool]]:
    """The ``if`` statements around a node in its function, or in the loop ``limit``, innermost first; whether
    it stands in the body, and not in what follows ``else``.
    """
    inner, outer = node, code.parents.get(node)
    while outer is not None and outer is not limit and not isinstance(outer, cst.FunctionDef | cst.ClassDef):
        if isinstance(outer, cst.If) and inner is not outer.test:
            yield outer, inner is outer.body
        inner, outer = outer, code.parents.get(outer)


def statement_at(code: Code, line: int) -> cst.CSTNode | None:
    """The innermost statement that stands in a line, or begins there."""
    kinds = (cst.SimpleStatementLine, cst.BaseCompoundStatement, cst.BaseSmallStatement)
    found = [
        node
        for node in code.nodes(cst.CSTNode)  # type: ignore[type-abstract]
        if isinstance(node, kinds) and code.line(node) <= line <= code.end(node)[0]
    ]
    return max(found, key=lambda node: code.span(node)[0], default=None)


def counter(code: Code, loop: cst.CSTNode) -> cst.Name | None:
    """The integer that a ``for`` counts with: of ``enumerate(...)`` or ``range(...)``."""
    if not isinstance(loop, cst.For):
        return None
    call = _made(code, loop.iter)
    for _ in range(_WRAPPED):
        if isinstance(call, cst.Call) and last_name(call.func) not in {"enumerate", *_RANGES} and call.args:
            call = _made(code, call.args[0].value)  # tqdm(enumerate(loader))
    if not isinstance(call, cst.Call):
        return None
    target: cst.BaseExpression = loop.target
    if last_name(call.func) == "enumerate":
        if not isinstance(target, cst.Tuple) or len(target.elements) != 2:
            return None
        target = target.elements[0].value
    elif last_name(call.func) not in _RANGES or len([a for a in call.args if a.keyword is None]) > 2:
        return None
    return target if isinstance(target, cst.Name) and not _bound_in(code, loop.body, target.value) else None


def _made(code: Code, node: cst.BaseExpression) -> cst.BaseExpression:
    """What a name stands for, where it is given one value only."""
    if not isinstance(node, cst.Name):
        return node
    bound = {id(one.node): one.node for one in code.assignments(node, node.value)}
    value = value_of(code, next(iter(bound.values()))) if len(bound) == 1 else None
    return value if value is not None and not isinstance(value, cst.Name) else node


def _bound_in(code: Code, body: cst.CSTNode, name: str) -> bool:
    bound = [one.node for one in code.assignments(body, name)]
    bound += [one for one in code.nodes(cst.AugAssign, body) if last_name(one.target) == name]
    return any(code.holds(body, node) for node in bound)


def counted(code: Code, node: cst.BaseExpression) -> cst.BaseExpression:
    """What counts steps or epochs in what is divided. Raises Cannot where that is not known."""
    shifted = (cst.Add, cst.Subtract)
    while isinstance(node, cst.BinaryOperation) and isinstance(node.operator, shifted):
        if not isinstance(node.right, cst.Integer):
            break
        node = node.left
    name = last_name(node)
    other = not _NUMBERS.isdisjoint(name.lower().split("_"))
    if name and not other and (_COUNTS.search(name) or _counts_up(code, node, name)):
        return node
    raise Cannot(f"what {code.source(node)} counts is not known", str(code.path), code.line(node))


def _counts_up(code: Code, node: cst.CSTNode, name: str) -> bool:
    """Whether a name is a loop's counter, or is added to somewhere."""
    loop = code.above(node, cst.For)
    while loop is not None:
        found = counter(code, loop)
        if found is not None and found.value == name:
            return True
        loop = code.above(loop, cst.For)
    return bool(_added_to(code, name))


def _added_to(code: Code, name: str, under: cst.CSTNode | None = None) -> list[cst.AugAssign]:
    return [
        one
        for one in code.nodes(cst.AugAssign, under)
        if isinstance(one.operator, cst.AddAssign) and last_name(one.target) == name
    ]


def counts_in(code: Code, node: cst.BaseExpression, loop: cst.CSTNode | None) -> bool:
    """Whether a plain name or attribute is one more in each round of a loop.

    Without a loop: whether it may be, as a parameter may.
    """
    name = last_name(node)
    if not name or "epoch" in name.lower():
        return False
    if any(code.source(one.value) != "1" for one in _added_to(code, name)):
        return False
    if not isinstance(node, cst.Name):
        return bool(_COUNTS.search(name) or _added_to(code, name))
    moves = bool(_added_to(code, name, loop))
    for one in code.assignments(node, name):
        bound = one.node
        around = _loop_of(code, bound)
        if isinstance(one, meta.ImportAssignment) or (around is not None and around is not loop):
            return False
        if around is not None:
            found = counter(code, around)
            moves = found is not None and found.value == name
        elif isinstance(bound, cst.Param):
            if bound.default is not None and not isinstance(bound.default, cst.Integer):
                return False
            moves = moves or loop is None
        else:
            value = value_of(code, bound)
            if value is not None and _may_be_broken(code, value):
                return False
            inside = loop is None or code.span(loop)[0] < code.span(bound)[0] < code.span(loop)[1]
            moves = moves or (inside and value is not None)
    return moves


def _loop_of(code: Code, bound: cst.CSTNode) -> cst.For | None:
    """The ``for`` that binds a name, if one does."""
    inner, outer = bound, code.parents.get(bound)
    while isinstance(outer, cst.Tuple | cst.Element | cst.List):
        inner, outer = outer, code.parents.get(outer)
    return outer if isinstance(outer, cst.For) and outer.target is inner else None


def _may_be_broken(code: Code, value: cst.BaseExpression) -> bool:
    divides = any(isinstance(one.operator, cst.Divide) for one in code.nodes(cst.BinaryOperation, value))
    return divides or any(True for _ in code.nodes(cst.Float, value))
