"""What a statement reads and writes, whether it is pure, and the loops that it stands in."""

from __future__ import annotations

import ast

from hotloop.source.code import Code
from hotloop.source.effects import (
    BY_NAME,
    DRAWING_METHODS,
    FIRST,
    PURE_BUILTINS,
    PURE_METHODS,
    in_place,
    pure_function,
)
from hotloop.source.nodes import (
    FUNCTIONS,
    LOOPS,
    Loop,
    last_name,
    root_of,
    targets_of,
)

_RUNS_LATER = (*FUNCTIONS, ast.Lambda, ast.ClassDef)


def reads(code: Code, node: ast.AST) -> set[str]:
    """The names that a statement or an expression reads, functions that it defines included."""
    return {one.id for one in code.nodes(ast.Name, node) if isinstance(one.ctx, ast.Load)} | {
        one.target.id for one in code.nodes(ast.AugAssign, node) if isinstance(one.target, ast.Name)
    }


def binds(code: Code, node: ast.AST) -> set[str]:
    """The names that a statement binds or deletes, without those of a comprehension or a function in it."""
    scope = code.scopes.of(node)
    inside = set(code.under(node))
    return {one.name for found in scope.bindings.values() for one in found if one.node in inside} | {
        one.id for one in code.nodes(ast.Name, node) if isinstance(one.ctx, ast.Del)
    }


def writes(code: Code, node: ast.AST) -> set[str]:
    """The names whose objects a statement may change: bound anew, changed in place, given to what may."""
    found = binds(code, node)
    for one in code.under(node):
        for target in targets_of(one):
            found.add(last_name(root_of(target)))
        if isinstance(one, ast.Call):
            if isinstance(one.func, ast.Attribute) and in_place(one.func.attr):
                found.add(last_name(root_of(one.func.value)))
            if last_name(one.func) in FIRST and one.args:
                found.add(last_name(root_of(one.args[0])))
    return found - {""}


def is_pure_call(code: Code, call: ast.Call) -> bool:
    """Whether a call itself changes nothing and draws nothing; what it is given is another question."""
    name = last_name(call.func)
    if name in BY_NAME or any(one.arg in ("out", "inplace") for one in call.keywords):
        return False
    if code.builtin(call.func):
        return name in PURE_BUILTINS
    if qualified := code.qualified(call.func):
        return pure_function(qualified)
    return isinstance(call.func, ast.Attribute) and name in PURE_METHODS and name not in DRAWING_METHODS


def is_pure(code: Code, node: ast.AST) -> bool:
    """Whether running a statement or expression changes nothing but the names it binds, and draws nothing.

    A call that no table has is not pure.
    """
    for one in code.under(node):
        if isinstance(
            one, ast.Await | ast.Yield | ast.YieldFrom | ast.Delete | ast.Raise | ast.Import | ast.Global
        ):
            return False
        if isinstance(one, ast.Call) and not is_pure_call(code, one):
            return False
        if any(not isinstance(target, ast.Name) for target in targets_of(one)):
            return False
        if isinstance(one, ast.AugAssign):
            return False
    return True


def loops_around(code: Code, node: ast.AST) -> list[Loop]:
    """The loops of the node's own function that it runs in at every round, innermost first."""
    found: list[Loop] = []
    inner = node
    for above in code.ancestors(node):
        if isinstance(above, _RUNS_LATER):
            break
        if (
            isinstance(above, LOOPS)
            and inner not in above.orelse
            and inner is not getattr(above, "iter", None)
        ):
            found.append(above)
        inner = above
    return found
