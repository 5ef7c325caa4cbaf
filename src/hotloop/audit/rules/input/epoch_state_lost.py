"""``input/epoch-state-lost``: the dataset is told the epoch, persistent workers keep their old copies."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotloop.audit.hit import hit
from hotloop.audit.loaders import Loader
from hotloop.audit.module import chain
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "input/epoch-state-lost"


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where a loop of epochs changes the dataset of a loader whose workers persist."""
    for loader in tree.loaders:
        if loader.constant("persistent_workers", False) is not True:
            continue
        change = next(_changes(loader), None)
        if change is not None:
            yield hit(
                ID,
                loader.module,
                change,
                "high",
                "The dataset is changed here, in the training process; the workers persist and keep the copy "
                "they were started with, so the change never reaches a sample.",
                "Hold the epoch in shared memory (torch.multiprocessing.Value), or let the sampler carry it.",
            )


def _changes(loader: Loader) -> Iterator[ast.AST]:
    module = loader.module
    dataset = loader.given.get("dataset")
    names = {f"{loader.target}.dataset", chain(dataset)} - {".dataset", ""}
    scope = module.function_of(loader.call) or module.tree
    for node in ast.walk(scope):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "set_epoch" and chain(node.func.value) in names:
                yield node
        elif isinstance(node, ast.Assign):
            owner, _, attribute = chain(node.targets[0]).rpartition(".")
            if "epoch" in attribute and owner in names:
                yield node
