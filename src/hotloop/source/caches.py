"""What a class of samples keeps of every sample it makes, and never throws out."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from hotloop.source.code import Code, code_of
from hotloop.source.nodes import (
    Function,
    is_none,
    is_of_self,
    last_name,
    parameters_of,
    targets_of,
)
from hotloop.source.values import bound_to_self, method

_FORGETS: Final = ("pop", "popitem", "clear", "len")


def unbounded_caches(code: Code, owner: ast.ClassDef) -> Iterator[tuple[ast.Subscript, str]]:
    """``self.kept[index] = ...`` in the code of a sample, with what keeps; the key is made of what the method
    is called with.
    """
    getitem = method(owner, "__getitem__")
    functions = [getitem] if getitem is not None else []
    for function in functions:  # grows as it goes
        given = _given(code, function)
        called = [
            method(owner, last_name(c.func)) for c in code.nodes(ast.Call, function) if is_of_self(c.func)
        ]
        functions += [one for one in dict.fromkeys(called) if one is not None and one not in functions]
        for node in code.nodes(ast.Subscript, function):
            stores = isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Attribute)
            if stores and is_of_self(node.value) and _is_keyed(code, node.slice, given):
                name = last_name(node.value)
                made = bound_to_self(code, owner, name)
                if len(made) == 1 and _is_empty(made[0]) and not _is_bounded(code, owner, name):
                    yield node, ast.unparse(node.value)


def kept_samples(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a file that keep every sample, with the name of the method."""
    code = code_of(text)
    if code is None:
        return
    for owner in code.nodes(ast.ClassDef):
        for node, _ in unbounded_caches(code, owner):
            function = code.function_of(node)
            yield node.lineno, f"{owner.name}.{function.name if function is not None else ''}"


def _given(code: Code, function: Function) -> set[str]:
    """The parameters, and the names of what is made of them."""
    names = {one.arg for one in parameters_of(function)} - {"self"}
    for statement in code.nodes(ast.Assign, function):
        if _is_keyed(code, statement.value, names):
            names |= {one.id for one in targets_of(statement) if isinstance(one, ast.Name)}
    return names


def _is_keyed(code: Code, key: ast.expr, names: set[str]) -> bool:
    """Whether a key differs with each sample; one modulo a number is no more than that number."""
    counts = any(isinstance(node.op, ast.Mod) for node in code.nodes(ast.BinOp, key))
    return not counts and any(node.id in names for node in code.nodes(ast.Name, key))


def _is_empty(node: ast.expr | None) -> bool:
    """``{}``, ``dict()``, ``[None] * n``."""
    if isinstance(node, ast.BinOp) and isinstance(node.left, ast.List):
        return isinstance(node.op, ast.Mult) and all(map(is_none, node.left.elts))
    if isinstance(node, ast.Call):
        return last_name(node.func) in ("dict", "OrderedDict") and not node.args
    return isinstance(node, ast.Dict) and not node.keys


def _is_bounded(code: Code, owner: ast.ClassDef, name: str) -> bool:
    """Whether anything in the class removes entries or asks how many there are."""
    return bool(code.nodes(ast.Delete, owner)) or any(
        last_name(call.func) in _FORGETS
        and any(node.attr == name for node in code.nodes(ast.Attribute, call))
        for call in code.nodes(ast.Call, owner)
    )
