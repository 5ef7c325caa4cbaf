"""Configured values that a class keeps in an attribute which nothing reads."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from hotloop.audit.module import Function, Module
from hotloop.audit.tree import Tree


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Where ``self.ATTRIBUTE = config["NAME"]`` stands."""

    module: Module
    assign: ast.Assign
    attribute: str


def kept(tree: Tree, name: str) -> Kept | None:
    """The one place that takes the configured ``name``, where all it does is keep it.

    What reads the name elsewhere must be an override of the very method, or called from such alone: then
    either the value is kept for nothing, or the override runs instead. Anything else could apply it: None.
    """
    found = [(module, assign) for module in tree.modules for assign in module.assigns if _keeps(assign, name)]
    if len(found) != 1:
        return None
    module, assign = found[0]
    owner, method = module.class_of(assign), module.function_of(assign)
    if owner is None or method is None or not _is_whole(tree, owner) or not _is_used(tree, owner):
        return None
    attribute = assign.targets[0].attr  # type: ignore[attr-defined]
    if _is_loaded(tree, module, attribute, assign):
        return None
    own = set(ast.walk(assign))
    others = ((m, node) for m, node in _mentions(tree, name) if node not in own)
    if not all(_runs_instead(tree, owner, method, m, node, frozenset()) for m, node in others):
        return None
    return Kept(module=module, assign=assign, attribute=attribute)


def _keeps(assign: ast.Assign, name: str) -> bool:
    target, value = assign.targets[0], assign.value
    if len(assign.targets) != 1 or not isinstance(target, ast.Attribute):
        return False
    if not isinstance(target.value, ast.Name) or target.value.id != "self":
        return False
    if isinstance(value, ast.Attribute):
        return value.attr == name
    key: ast.expr | None = value.slice if isinstance(value, ast.Subscript) else None
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "get":
        key = value.args[0] if value.args else None
    return isinstance(key, ast.Constant) and key.value == name


def _is_whole(tree: Tree, owner: ast.ClassDef) -> bool:
    """Whether all of a class is in the tree: a base from elsewhere may read its attributes."""
    known = {one.name for module in tree.modules for one in module.classes}
    return not owner.keywords and all(isinstance(b, ast.Name) and b.id in known for b in owner.bases)


def _is_used(tree: Tree, owner: ast.ClassDef) -> bool:
    """Whether the class is named other than as a base: one that is only inherited from never runs itself."""
    return any(
        isinstance(node, ast.Name)
        and node.id == owner.name
        and not isinstance(module.parents.get(node), ast.ClassDef)
        for module in tree.modules
        for node in module.parents
    )


def _is_loaded(tree: Tree, home: Module, attribute: str, assign: ast.Assign) -> bool:
    """Whether anything may read the attribute, by its name or by one that cannot be seen."""
    if re.search(r"__dict__|\bvars\(", home.source.text):
        return True
    own = set(ast.walk(assign))
    for module in tree.modules:
        for node in module.parents:
            if isinstance(node, ast.Attribute) and node.attr == attribute:
                if isinstance(node.ctx, ast.Load) and node not in own:
                    return True
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                named = node.args[1] if node.func.id == "getattr" and len(node.args) > 1 else None
                if named is not None and getattr(named, "value", attribute) == attribute:
                    return True
    return False


def _mentions(tree: Tree, name: str) -> Iterator[tuple[Module, ast.AST]]:
    """Whatever may read ``name`` or a key under it."""
    for module in tree.modules:
        for node in module.parents:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                if node.value == name or node.value.startswith(f"{name}."):
                    yield module, node
            elif (
                (isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Load))
                or (isinstance(node, ast.Name) and node.id == name)
                or (isinstance(node, ast.keyword | ast.arg) and node.arg == name)
            ):
                yield module, node


def _runs_instead(
    tree: Tree, owner: ast.ClassDef, method: Function, module: Module, node: ast.AST, seen: frozenset[str]
) -> bool:
    """Whether ``node`` runs only in overrides of the method by subclasses of its class."""
    function = module.function_of(node)
    if function is None or function.name in seen:
        return False
    inside = module.class_of(function)
    if inside is not None:
        bases = [base.id for base in inside.bases if isinstance(base, ast.Name)]
        return function.name == method.name and owner.name in bases
    callers = list(tree.callers(function))
    seen |= {function.name}
    return bool(callers) and all(_runs_instead(tree, owner, method, m, call, seen) for m, call in callers)
