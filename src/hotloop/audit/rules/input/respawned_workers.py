"""``input/respawned-workers`` in source: worker processes start again at every epoch."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotloop.audit.hit import hit
from hotloop.audit.loaders import Loader
from hotloop.audit.module import chain
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "input/respawned-workers"


def check(tree: Tree) -> Iterator[Finding]:
    """Speak of loaders with a literal number of workers that a loop of epochs iterates or makes anew."""
    for loader in tree.loaders:
        workers = loader.constant("num_workers", 0)
        if not isinstance(workers, int) or workers < 1 or loader.role != "train":
            continue
        if _made_in_training_loop(tree, loader):
            yield hit(
                ID,
                loader.module,
                loader.call,
                "low",
                f"A DataLoader with {workers} workers is made anew in a loop: its processes start again each "
                "time.",
                "Make the loader once, before the loop, with persistent_workers=True.",
            )
        elif loader.has("persistent_workers") is False and _iterated_by_epoch(loader):
            yield hit(
                ID,
                loader.module,
                loader.call,
                "low",
                f"The {workers} worker processes are stopped and started again at every epoch.",
                "Pass persistent_workers=True.",
            )


def _made_in_training_loop(tree: Tree, loader: Loader) -> bool:
    loops = []
    for above in loader.module.ancestors(loader.call):
        if isinstance(above, ast.If):
            return False
        loops += [above] if isinstance(above, ast.For | ast.While) else []
    roots = {region.root for region in tree.regions if region.module is loader.module}
    return any(
        root is not loop and loop in loader.module.ancestors(root) and _counts_epochs(loop)
        for loop in loops
        for root in roots
    )


def _iterated_by_epoch(loader: Loader) -> bool:
    """Whether a loop over the loader stands in a loop of epochs, in the function that made it."""
    function, target = loader.module.function_of(loader.call), loader.target
    if not target:
        return False
    scope = function or loader.module.tree
    for node in ast.walk(scope):
        if isinstance(node, ast.For) and _counts_epochs(node):
            for inner in ast.walk(node):
                if inner is not node and isinstance(inner, ast.For) and _names(inner.iter, target):
                    return True
                if isinstance(inner, ast.Call) and any(_names(argument, target) for argument in inner.args):
                    return not isinstance(inner.func, ast.Name) or inner.func.id not in (
                        "len",
                        "print",
                        "iter",
                    )
    return False


def _names(node: ast.AST, target: str) -> bool:
    return any(chain(part) == target for part in ast.walk(node) if isinstance(part, ast.Name | ast.Attribute))


def _counts_epochs(node: ast.AST) -> bool:
    return isinstance(node, ast.For) and "epoch" in f"{ast.dump(node.target)}{ast.dump(node.iter)}".lower()
