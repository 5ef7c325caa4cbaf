"""What an expression stands for, through names that are bound once and attributes of ``self``."""

from __future__ import annotations

import ast
from typing import Any, Final

from hotloop.source.code import Code
from hotloop.source.nodes import FUNCTIONS, Function, is_none, is_self, text_of
from hotloop.source.scopes import bound_value

#: What ``constant`` answers where the value is not known.
UNKNOWN: Final = object()


def values(code: Code, node: ast.AST) -> list[ast.expr | None]:
    """What a name or ``self.name`` may be bound to, None for what is no expression; all else is itself."""
    if isinstance(node, ast.Name):
        return [one.value for one in code.bindings(node, node.id)]
    if isinstance(node, ast.Attribute) and is_self(node.value):
        owner = code.class_of(node)
        return bound_to_self(code, owner, node.attr) if owner is not None else []
    return [node] if isinstance(node, ast.expr) else []


def value(code: Code, node: ast.AST) -> ast.expr | None:
    """The one expression behind a name, where there is exactly one."""
    found = values(code, node)
    return found[0] if len(found) == 1 else None


def bound_to_self(code: Code, owner: ast.ClassDef, name: str) -> list[ast.expr | None]:
    """Everything ``self.NAME`` is bound to in a class, None for what is no expression of its own."""
    return [
        bound_value(node, code.parents)
        for node in code.nodes(ast.Attribute, owner)
        if node.attr == name and isinstance(node.ctx, ast.Store) and is_self(node.value)
    ]


def constant(code: Code, node: ast.AST | None, depth: int = 3) -> Any:
    """The literal value of an expression, through names bound once; ``UNKNOWN`` where there is none."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = constant(code, node.operand, depth)
        return -inner if isinstance(inner, int | float) else UNKNOWN
    if depth and isinstance(node, ast.Name | ast.Attribute):
        behind = value(code, node)
        if behind is not None:
            return constant(code, behind, depth - 1)
    return UNKNOWN


def made_by(code: Code, node: ast.AST, depth: int = 2) -> str:
    """Full name of the call that made what an expression stands for, where all its bindings agree."""
    if isinstance(node, ast.Call):
        name = code.qualified(node.func) or code.builtin(node.func)
        if not name and isinstance(node.func, ast.Attribute) and node.func.attr in ("to", "cuda"):
            return made_by(code, node.func.value, depth)
        return name
    if not depth or not isinstance(node, ast.Name | ast.Attribute):
        return ""
    found = [one for one in values(code, node) if not is_none(one)]
    names = {made_by(code, one, depth - 1) if one is not None else "" for one in found}
    return names.pop() if len(names) == 1 else ""


def method(owner: ast.ClassDef, name: str) -> Function | None:
    """A method defined in the class itself."""
    return next((one for one in owner.body if isinstance(one, FUNCTIONS) and one.name == name), None)


# What is looked up by a key


def looked_up(node: ast.AST) -> tuple[str, ast.expr | None] | None:
    """Key and default of ``x.get("key", default)`` and ``getattr(x, "key", default)``."""
    if not isinstance(node, ast.Call) or node.keywords:
        return None
    if isinstance(node.func, ast.Attribute) and node.func.attr == "get" and len(node.args) in (1, 2):
        given = node.args
    elif isinstance(node.func, ast.Name) and node.func.id == "getattr" and len(node.args) in (2, 3):
        given = node.args[1:]
    else:
        return None
    key = text_of(given[0])
    return (key, given[1] if len(given) == 2 else None) if key else None


def keys_of(node: ast.expr) -> tuple[ast.expr, tuple[str, ...]]:
    """``a.b["c"].get("d")`` as ``a`` and (b, c, d); what is no such chain is its own root."""
    keys: list[str] = []
    while True:
        got = looked_up(node)
        if isinstance(node, ast.Attribute):
            keys.append(node.attr)
            node = node.value
        elif got is not None and isinstance(node, ast.Call):
            keys.append(got[0])
            node = node.func.value if isinstance(node.func, ast.Attribute) else node.args[0]
        elif isinstance(node, ast.Subscript) and (key := text_of(node.slice)):
            keys.append(key)
            node = node.value
        else:
            return node, tuple(reversed(keys))
