"""What the loop over a loader writes to the dataset, read in the source of the loop before it begins."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

from hotloop.probe.carrying import making_of, tree_of, writes_of
from hotloop.probe.identity import is_own
from hotloop.probe.observers.loader_facts import own_dataset
from hotloop.probe.observers.pass_state import is_private

#: Methods of containers that change them.
_CHANGING: Final = frozenset([
    "add", "append", "appendleft", "clear", "discard", "extend", "fill", "insert", "pop", "popleft", "put",
    "remove", "setdefault", "sort", "update",
])  # fmt: skip


def why_alone(loader: Any, frame: FrameType | None) -> str:
    """Why workers would make other samples of a dataset than the training process does, "" for no reason.

    ``frame`` is where it is about to be gone through. A dataset whose source cannot be read is not doubted.
    """
    dataset = own_dataset(loader.dataset)
    making = making_of(type(dataset))
    if making is None:
        return ""
    if making.carried:
        names = ", ".join(making.carried)
        return f"its samples depend on those made before them ({names}), and each worker would have its own"
    while frame is not None and not is_own(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    found = dict.fromkeys(_written(frame, dataset, making.reads) if frame is not None else ())
    names = ", ".join(found)
    return f"the loop writes {names} of the dataset, which workers would not see" if names else ""


def _written(frame: FrameType, dataset: Any, reads: frozenset[str]) -> Iterator[str]:
    """Attributes of the dataset, of those that samples are made of, that the loop writes by name."""
    tree = tree_of(frame.f_code.co_filename)
    body = _looped(tree, frame.f_lineno) if tree is not None else []
    writes = [each for statement in body for each in _writes(statement, type(dataset))]
    writes = [(owner, name, anew) for owner, name, anew in writes if name in reads]
    if not writes:
        return  # what a function's variables hold may live longer for having been asked for
    known = {**frame.f_globals, **frame.f_locals}
    held = getattr(dataset, "__dict__", {})
    for owner, name, anew in writes:
        if _found(owner, known) is dataset and (anew or name not in held or is_private(held[name])):
            yield name


def _writes(statement: ast.stmt, kind: type) -> Iterator[tuple[ast.expr, str, bool]]:
    """Attributes that a statement would write to, were their owner of a class; whether they are exchanged."""
    methods = {name for one in kind.__mro__ for name in vars(one)}
    for node in ast.walk(statement):
        for target in _targets(node):
            below = target
            while isinstance(below, ast.Attribute | ast.Subscript):
                if isinstance(below, ast.Attribute):
                    yield below.value, below.attr, below is target and isinstance(node, ast.Assign)
                below = below.value
        method = node.func if isinstance(node, ast.Call) else None
        if isinstance(method, ast.Attribute) and method.attr in methods:
            yield from ((method.value, name, False) for name in sorted(writes_of(kind, method.attr)))


def _looped(tree: ast.Module, line: int) -> list[ast.stmt]:
    """The statements of the innermost loop whose head is at a line."""
    loops = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.For) and node.lineno <= line <= (node.iter.end_lineno or node.lineno)
    ]
    return max(loops, key=lambda node: node.lineno).body if loops else []


def _targets(node: ast.AST) -> list[ast.expr]:
    """What a statement, or a call, writes to."""
    if isinstance(node, ast.Assign | ast.Delete):
        return [each for target in node.targets for each in getattr(target, "elts", [target])]
    if isinstance(node, ast.AugAssign | ast.AnnAssign):
        return [node.target]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        method = node.func.attr
        changes = method in _CHANGING or (method.endswith("_") and not method.endswith("__"))
        return [node.func.value] if changes else []
    return []


def _found(node: ast.expr, known: dict[str, Any]) -> Any:
    """The object that a name, or attributes of one, stand for; None where it cannot be told."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Attribute):
        return getattr(_found(node.value, known), "__dict__", {}).get(node.attr)
    return None
