"""``memory/unbounded-cache`` in source: a Dataset keeps every sample it made, in every worker."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotloop.audit.datasets import DatasetClass
from hotloop.audit.hit import hit
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "memory/unbounded-cache"


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where the code of a sample stores into a dict of the dataset, under no option and no bound.

    A dataset kept in one process is a choice: silent where every loader surely has no workers.
    """
    if tree.loaders and all(loader.constant("num_workers", 0) == 0 for loader in tree.loaders):
        return
    for dataset in tree.datasets:
        stored = next(_stores(dataset), None)
        if stored is not None:
            yield hit(
                ID,
                dataset.module,
                stored,
                "medium",
                f"`{ast.unparse(stored.value)}` keeps every sample and forgets none; each worker process "
                f"fills one of its "
                "own, so memory grows to workers x dataset.",
                "Bound it, or keep one cache for all workers (hotloop.feed, a memory-mapped file).",
            )


def _stores(dataset: DatasetClass) -> Iterator[ast.Subscript]:
    module = dataset.module
    for function in dataset.sample_code():
        for node in ast.walk(function):
            if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Store):
                continue
            owner = node.value
            if not isinstance(owner, ast.Attribute) or getattr(owner.value, "id", "") != "self":
                continue
            made = module.attribute_bindings(dataset.node, owner.attr)
            if len(made) != 1 or not _is_dict(made[0]) or isinstance(node.slice, ast.Constant):
                continue
            if not _bounded(dataset, owner.attr) and not _optional(dataset, node, owner.attr):
                yield node


def _is_dict(node: ast.expr | None) -> bool:
    return (isinstance(node, ast.Dict) and not node.keys) or (
        isinstance(node, ast.Call) and getattr(node.func, "id", "") == "dict" and not node.args
    )


def _bounded(dataset: DatasetClass, name: str) -> bool:
    """Whether anything in the class removes entries or asks for the size."""
    for node in ast.walk(dataset.node):
        if isinstance(node, ast.Attribute) and node.attr in ("pop", "popitem", "clear"):
            named: list[ast.AST] = [node.value]
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "len":
            named = list(ast.walk(node))
        else:
            named = []
        if isinstance(node, ast.Delete) or any(getattr(part, "attr", "") == name for part in named):
            return True
    return False


def _optional(dataset: DatasetClass, node: ast.AST, name: str) -> bool:
    """Whether storing is under a condition other than «not there yet»."""
    for above in dataset.module.ancestors(node):
        if above is dataset.node:
            return False
        if isinstance(above, ast.If):
            tested = {part.attr for part in ast.walk(above.test) if isinstance(part, ast.Attribute)}
            if tested - {name} or not tested:
                return True
    return False
