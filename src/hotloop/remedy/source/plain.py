"""Expressions that are plain Python numbers whatever runs, and how large their integers can be."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import libcst as cst

from hotloop.remedy.source.code import Code, last_name
from hotloop.remedy.source.values import value_of

#: Bits of an expression: a float or an integer of at most so many; ``FLOAT``: a float, ``LARGE``: any number.
FLOAT: Final = 0
LARGE: Final = 1 << 20
#: What a loop counts to, or what ``len`` gives: no loop in Python runs more often.
_COUNTED: Final = 26
_GIVE_FLOATS: Final = ("float",)
_GIVE_COUNTS: Final = ("len", "ord")
_GIVE_NUMBERS: Final = ("int", "bool")
#: Functions of Python's that give a float whatever they are given.
_FLOATS: Final = frozenset([
    *(f"math.{name}" for name in (
        "exp", "expm1", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan",
        "atan2", "sinh", "cosh", "tanh", "hypot", "pow", "fabs", "radians", "degrees", "erf", "dist", "fmod",
    )),
    "random.random", "random.uniform", "random.gauss", "random.normalvariate", "time.time",
    "time.perf_counter", "math.pi", "math.e", "math.inf", "math.nan", "math.tau",
])  # fmt: skip
_NUMBERS: Final = frozenset(["math.floor", "math.ceil", "math.gcd", "math.comb", "random.randint",
                             "random.randrange"])  # fmt: skip
#: Functions and methods that give no tensor of integers.
_OF_FLOATS: Final = frozenset([
    "exp", "log", "log2", "log1p", "sqrt", "rsqrt", "sigmoid", "softmax", "log_softmax", "tanh", "sin", "cos",
    "atan2", "mean", "std", "var", "norm", "cdist", "float", "double", "half", "bfloat16",
])  # fmt: skip
#: How many names are followed to what they were given.
_DEPTH: Final = 10
_NOTHING: Final[Mapping[str, int]] = MappingProxyType({})


def bits(
    code: Code, node: cst.BaseExpression, depth: int = _DEPTH, assumed: Mapping[str, int] = _NOTHING
) -> int | None:
    """How many bits an expression's value has, ``FLOAT`` or ``LARGE``; None where it may be no number."""
    if depth < 0:
        return None
    if isinstance(node, cst.Float):
        return FLOAT
    if isinstance(node, cst.Integer):
        return max(1, int(node.evaluated_value).bit_length())
    if isinstance(node, cst.UnaryOperation):
        if isinstance(node.operator, cst.Not):
            return 1
        return bits(code, node.expression, depth, assumed)
    if isinstance(node, cst.BinaryOperation):
        return _of_both(code, node, depth, assumed)
    if isinstance(node, cst.IfExp):
        return _either(bits(code, node.body, depth, assumed), bits(code, node.orelse, depth, assumed))
    if isinstance(node, cst.Comparison):
        others = [target.comparator for target in node.comparisons]
        told = all(bits(code, one, depth, assumed) is not None for one in (node.left, *others))
        identity = all(isinstance(t.operator, cst.Is | cst.IsNot) for t in node.comparisons)
        return 1 if told or identity else None
    if isinstance(node, cst.Call):
        return _of_a_call(code, node, depth, assumed)
    if isinstance(node, cst.Attribute):
        return FLOAT if code.qualified(node) in _FLOATS else None
    return _of_a_name(code, node, depth, assumed) if isinstance(node, cst.Name) else None


def _either(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else max(left, right)


def _of_both(code: Code, node: cst.BinaryOperation, depth: int, assumed: Mapping[str, int]) -> int | None:
    left, right = (bits(code, one, depth - 1, assumed) for one in (node.left, node.right))
    if left is None or right is None:
        return None
    operator = node.operator
    if isinstance(operator, cst.Divide):
        return FLOAT
    if isinstance(operator, cst.MatrixMultiply):
        return None
    if isinstance(operator, cst.Power):
        exponent = node.right
        known = isinstance(exponent, cst.Integer) and left not in (FLOAT, LARGE)
        if known and isinstance(exponent, cst.Integer):
            return min(LARGE, left * max(1, int(exponent.evaluated_value)))
        return FLOAT if left == FLOAT and isinstance(exponent, cst.Integer) else LARGE
    if FLOAT in (left, right):
        arithmetic = isinstance(
            operator, cst.Add | cst.Subtract | cst.Multiply | cst.Modulo | cst.FloorDivide
        )
        return FLOAT if arithmetic else None
    if LARGE in (left, right):
        return LARGE
    if isinstance(operator, cst.Add | cst.Subtract):
        return max(left, right) + 1
    if isinstance(operator, cst.Multiply):
        return left + right
    if isinstance(operator, cst.FloorDivide | cst.Modulo | cst.BitAnd | cst.RightShift):
        return max(left, right)
    return LARGE


def _of_a_call(code: Code, node: cst.Call, depth: int, assumed: Mapping[str, int]) -> int | None:
    name, whole = last_name(node.func), code.qualified(node.func)
    if whole in _FLOATS:
        return FLOAT
    if whole in _NUMBERS:
        return LARGE
    if isinstance(node.func, cst.Attribute) and not whole:
        if name != "item" or node.args:
            return None
        return FLOAT if _is_of_floats(code, node.func.value) else LARGE
    if not isinstance(node.func, cst.Name) or whole or code.assignments(node.func, name):
        return None
    if name in _GIVE_FLOATS:
        return FLOAT
    if name in _GIVE_COUNTS:
        return _COUNTED
    if name in _GIVE_NUMBERS:
        return 1 if name == "bool" else LARGE
    if (
        name in ("min", "max", "abs", "round")
        and node.args
        and not any(a.star or a.keyword for a in node.args)
    ):
        given = [bits(code, arg.value, depth - 1, assumed) for arg in node.args]
        if name in ("min", "max") and len(given) < 2:
            return None
        found: int | None = given[0]
        for one in given[1:]:
            found = _either(found, one)
        return LARGE if found == FLOAT and name == "round" else found
    return None


def _is_of_floats(code: Code, node: cst.BaseExpression) -> bool:
    """Whether an expression, if it is a tensor, is one of floats: ``(a / b).item()``, ``x.mean().item()``"""
    if isinstance(node, cst.BinaryOperation):
        return isinstance(node.operator, cst.Divide)
    return isinstance(node, cst.Call) and last_name(node.func) in _OF_FLOATS


def _of_a_name(code: Code, node: cst.Name, depth: int, assumed: Mapping[str, int]) -> int | None:
    if node.value in ("True", "False"):
        return 1
    if node.value in assumed:
        return assumed[node.value]
    if code.qualified(node):
        return FLOAT if code.qualified(node) in _FLOATS else None
    bound = [one.node for one in code.assignments(node, node.value)]
    around = code.function_of(node)
    if not bound or is_set_elsewhere(code, node.value):
        return None
    if any(code.function_of(one) is not around and code.function_of(one) is not None for one in bound):
        return None
    # What it is made of itself: a float stays one; of integers that grow nothing is known.
    first, again = (_of_all(code, bound, depth, {**assumed, node.value: one}) for one in (FLOAT, LARGE))
    return first if first in (None, FLOAT, again) else None if again is None else LARGE


def _of_all(code: Code, bound: list[cst.CSTNode], depth: int, assumed: Mapping[str, int]) -> int | None:
    found = 0
    for one in bound:
        told = _bound(code, one, depth - 1, assumed)
        if told is None:
            return None
        found = max(found, told)
    grows = any(isinstance(code.parents.get(one), cst.AugAssign) for one in bound)
    return found + 1 if grows and found not in (FLOAT, LARGE) else found


def is_set_elsewhere(code: Code, name: str) -> bool:
    """Whether a variable is set where its bindings do not show: ``global NAME``, ``case [NAME]``."""
    return name in _set_elsewhere(code)


@lru_cache(maxsize=16)
def _set_elsewhere(code: Code) -> frozenset[str]:
    statements: list[cst.Global | cst.Nonlocal] = [*code.nodes(cst.Global), *code.nodes(cst.Nonlocal)]
    matched: list[cst.MatchAs | cst.MatchStar] = [*code.nodes(cst.MatchAs), *code.nodes(cst.MatchStar)]
    names = {item.name.value for statement in statements for item in statement.names}
    names |= {rest.value for one in code.nodes(cst.MatchMapping) if (rest := one.rest) is not None}
    return frozenset(names | {one.name.value for one in matched if one.name is not None})


def _bound(code: Code, bound: cst.CSTNode, depth: int, assumed: Mapping[str, int]) -> int | None:
    """Bits of what a name is given where it is bound."""
    value = value_of(code, bound)
    above = code.parents.get(bound)
    if isinstance(above, cst.AugAssign) and above.target is bound:
        return _added(code, above, depth, assumed)
    if value is not None:
        return bits(code, value, depth, assumed)
    return _counted(code, bound)


def _added(code: Code, statement: cst.AugAssign, depth: int, assumed: Mapping[str, int]) -> int | None:
    """``count += 1``: what is added up in a loop has as many bits as the loop makes of it."""
    given = bits(code, statement.value, depth, assumed)
    if given is None:
        return None
    if isinstance(statement.operator, cst.DivideAssign):
        return FLOAT
    if not isinstance(statement.operator, cst.AddAssign | cst.SubtractAssign):
        return LARGE
    return given if given in (FLOAT, LARGE) else given + _COUNTED


def _counted(code: Code, bound: cst.CSTNode) -> int | None:
    """``for i in range(n)``, and the first of ``for i, x in enumerate(xs)``."""
    above, first = code.parents.get(bound), True
    target: cst.CSTNode = bound
    if isinstance(above, cst.Element):
        outer = code.parents.get(above)
        first = isinstance(outer, cst.Tuple) and outer.elements[0] is above
        target, above = (outer, code.parents.get(outer)) if outer is not None else (target, None)
    if not isinstance(above, cst.For | cst.CompFor) or above.target is not target:
        return None
    call = above.iter
    if isinstance(call, cst.Call) and isinstance(call.func, cst.Name) and call.func.value == "reversed":
        if len(call.args) != 1 or code.assignments(call.func, "reversed"):
            return None
        call = call.args[0].value
    if isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute) and target is not bound:
        rows = last_name(call.func) == "tolist" and not call.args and not code.qualified(call.func)
        return LARGE if rows else None  # of a table: a row of it gives numbers
    if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Name):
        return None
    name = call.func.value
    if code.assignments(call.func, name) or any(arg.star for arg in call.args):
        return None
    if name == "range" and target is bound:
        return _COUNTED
    return _COUNTED if name == "enumerate" and target is not bound and first and len(call.args) == 1 else None
