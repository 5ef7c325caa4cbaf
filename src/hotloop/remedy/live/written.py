"""What the loop over a loader writes to the dataset, read in the source of the loop before it begins."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

from hotloop.probe.carrying import making_of, tree_of, writes_of
from hotloop.probe.identity import is_own
from hotloop.probe.observers.loader_facts import own_dataset

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
    found = dict.fromkeys(_written(frame, dataset) if frame is not None else ())
    names = ", ".join(name for name in found if name in making.reads)
    return f"the loop writes {names} of the dataset, which workers would not see" if names else ""


def _written(frame: FrameType, dataset: Any) -> Iterator[str]:
    """Attributes of the dataset that the loop writes by name."""
    tree = tree_of(frame.f_code.co_filename)
    known = {**frame.f_globals, **frame.f_locals}
    for statement in _looped(tree, frame.f_lineno) if tree is not None else ():
        for node in ast.walk(statement):
            for target in _targets(node):
                yield from _named(target, known, dataset)
            method = node.func if isinstance(node, ast.Call) else None
            if isinstance(method, ast.Attribute) and _found(method.value, known) is dataset:
                yield from sorted(writes_of(type(dataset), method.attr))


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


def _named(target: ast.expr, known: dict[str, Any], dataset: Any) -> Iterator[str]:
    """The attribute of the dataset, if the target is one or lies beneath one."""
    while isinstance(target, ast.Attribute | ast.Subscript):
        if isinstance(target, ast.Attribute) and _found(target.value, known) is dataset:
            yield target.attr
        target = target.value


def _found(node: ast.expr, known: dict[str, Any]) -> Any:
    """The object that a name, or attributes of one, stand for; None where it cannot be told."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Attribute):
        return getattr(_found(node.value, known), "__dict__", {}).get(node.attr)
    return None
