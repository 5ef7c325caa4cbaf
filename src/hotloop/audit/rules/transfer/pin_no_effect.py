"""``transfer/pin-no-effect`` in source: the samples are of a class that pin_memory passes over."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotloop.audit.hit import hit
from hotloop.audit.module import Module, chain
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "transfer/pin-no-effect"
_PINNED_BASES = ("dict", "list", "tuple", "NamedTuple", "UserDict", "Mapping", "Sequence", "BatchEncoding")


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where the collate_fn surely returns an object of a class of the tree without pin_memory()."""
    classes = {node.name: (module, node) for module in tree.modules for node in module.classes}
    for loader in tree.loaders:
        collate = loader.given.get("collate_fn")
        if loader.constant("pin_memory", False) is not True or not isinstance(collate, ast.Name):
            continue
        target = tree.target(loader.module, ast.Call(func=collate, args=[], keywords=[]))
        if target is None:
            continue
        returned = [n.value for n in ast.walk(target[1]) if isinstance(n, ast.Return)]
        names = {_class_name(target[0], value) for value in returned}
        name = names.pop() if len(names) == 1 else ""
        found = classes.get(name)
        if found is None or found[0].method(found[1], "pin_memory") is not None:
            continue
        bases = [chain(base).rpartition(".")[2] for base in found[1].bases]
        if found[1].decorator_list or any(base in _PINNED_BASES or base in classes for base in bases):
            continue
        yield hit(
            ID,
            loader.module,
            loader.call,
            "medium",
            f"pin_memory=True has no effect: batches are {name} objects, and PyTorch pins only tensors, "
            f"mappings, "
            "sequences and objects with a pin_memory() method.",
            f"Give {name} a pin_memory() method that pins its tensors and returns self.",
        )


def _class_name(module: Module, node: ast.expr | None) -> str:
    value = module.value(node) if isinstance(node, ast.Name) else node
    return value.func.id if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) else ""
