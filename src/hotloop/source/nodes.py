"""Questions about one node, or one call, that need no file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

Function = ast.FunctionDef | ast.AsyncFunctionDef
Loop = ast.For | ast.AsyncFor | ast.While
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp

FUNCTIONS: Final[tuple[type[Function], ...]] = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOPS: Final[tuple[type[Loop], ...]] = (ast.For, ast.AsyncFor, ast.While)
COMPREHENSIONS: Final[tuple[type[Comprehension], ...]] = (
    ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
)  # fmt: skip
DEFINITIONS: Final[tuple[type[Function | ast.ClassDef], ...]] = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef,
)  # fmt: skip


def last_name(node: ast.AST | None) -> str:
    """``DataLoader`` of ``torch.utils.data.DataLoader``, "" for what has no name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def chain(node: ast.AST | None) -> str:
    """An attribute chain as written, ``self.optimizer``; calls and subscripts in it are left out."""
    parts: list[str] = []
    while node is not None:
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        elif isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        else:
            parts += [node.id] if isinstance(node, ast.Name) else []
            break
    return ".".join(reversed(parts))


def root_of(node: ast.AST) -> ast.AST:
    """``a`` of ``a.b["c"]``: what attributes and subscripts are taken of."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node


def is_self(node: ast.AST | None) -> bool:
    """Whether a node is the name ``self``."""
    return isinstance(node, ast.Name) and node.id == "self"


def is_of_self(node: ast.AST | None) -> bool:
    """Whether a node is ``self.NAME``."""
    return isinstance(node, ast.Attribute) and is_self(node.value)


def is_none(node: ast.AST | None) -> bool:
    """Whether an expression is the literal ``None``."""
    return isinstance(node, ast.Constant) and node.value is None


def text_of(node: ast.AST | None) -> str | None:
    """The text of a string literal."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def literal(node: ast.AST | None) -> bool:
    """Whether an expression is a plain number, string, True, False or None."""
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub) and literal(node.operand)
    return isinstance(node, ast.Constant) and not isinstance(node.value, bytes)


def argument(call: ast.Call, name: str, position: int | None = None) -> ast.expr | None:
    """An argument given by keyword or, without a ``*`` before it, by position."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    if position is not None and position < len(call.args):
        given = call.args[: position + 1]
        if not any(isinstance(one, ast.Starred) for one in given):
            return given[position]
    return None


def arguments(call: ast.Call) -> list[ast.expr]:
    """All that a call is given: by position, by keyword, and what is spread."""
    plain = [one.value if isinstance(one, ast.Starred) else one for one in call.args]
    return [*plain, *(keyword.value for keyword in call.keywords)]


def has_spread(call: ast.Call) -> bool:
    """Whether arguments are given by ``*`` or ``**``."""
    return any(isinstance(one, ast.Starred) for one in call.args) or spread_of(call) is not None


def spread_of(call: ast.Call) -> ast.keyword | None:
    """The first argument given by ``**``."""
    return next((keyword for keyword in call.keywords if keyword.arg is None), None)


def parameters_of(function: Function | ast.Lambda) -> list[ast.arg]:
    """The parameters that have a name of their own, without ``*args`` and ``**kwargs``."""
    given = function.args
    return [*given.posonlyargs, *given.args, *given.kwonlyargs]


def default_of(function: Function | ast.Lambda, name: str) -> ast.expr | None:
    """The default of a parameter."""
    given = function.args
    plain = [*given.posonlyargs, *given.args]
    pairs = [
        *zip(reversed(plain), reversed(given.defaults), strict=False),
        *zip(given.kwonlyargs, given.kw_defaults, strict=True),
    ]
    return next((value for one, value in pairs if one.arg == name), None)


def decorators(node: Function | ast.ClassDef) -> set[str]:
    """The last names of what decorates a function or a class."""
    return {last_name(one.func if isinstance(one, ast.Call) else one) for one in node.decorator_list}


def targets_of(node: ast.AST) -> list[ast.expr]:
    """What a statement or an expression binds: names, attributes and subscripts, taken out of tuples."""
    found: list[ast.expr] = []
    if isinstance(node, ast.Assign | ast.Delete):
        found = list(node.targets)
    elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.NamedExpr | ast.For | ast.AsyncFor):
        found = [node.target]
    elif isinstance(node, ast.With | ast.AsyncWith):
        found = [item.optional_vars for item in node.items if item.optional_vars is not None]
    elif isinstance(node, ast.comprehension):
        found = [node.target]
    return [part for one in found for part in parts_of(one)]


def parts_of(target: ast.expr) -> Iterator[ast.expr]:
    """``a``, ``b.c`` and ``d`` of the target ``a, (b.c, *d)``."""
    if isinstance(target, ast.Tuple | ast.List):
        for one in target.elts:
            yield from parts_of(one)
    elif isinstance(target, ast.Starred):
        yield from parts_of(target.value)
    else:
        yield target


def entry(node: ast.AST | None, key: str) -> ast.expr | None:
    """The value of a key in ``{"key": value}`` or ``dict(key=value)``; the last one that is written."""
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        found = [value for name, value in pairs if text_of(name) == key]
        return found[-1] if found else None
    if isinstance(node, ast.Call) and last_name(node.func) == "dict":
        return argument(node, key)
    return None
