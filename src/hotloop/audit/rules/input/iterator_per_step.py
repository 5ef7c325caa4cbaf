"""``input/iterator-per-step``: ``next(iter(loader))`` in a loop makes a new iterator for every batch."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotloop.audit.hit import hit
from hotloop.audit.module import Module, chain
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "input/iterator-per-step"


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where next(iter(x)) runs at every step and x is a DataLoader of the same file."""
    for region in tree.regions:
        for call in region.calls_named("next"):
            inner = call.args[0] if call.args else None
            if (
                not isinstance(inner, ast.Call)
                or region.module.dotted(inner.func) != "iter"
                or not inner.args
            ):
                continue
            if region.every_step(call) and _is_loader(tree, region.module, inner.args[0]):
                yield hit(
                    ID,
                    region.module,
                    call,
                    "high",
                    f"next(iter({chain(inner.args[0])})) makes a new iterator at every step: workers "
                    f"start, fill "
                    "their queues and are thrown away for one batch, and the order is shuffled anew each "
                    "time.",
                    "Keep one iterator outside the loop; make a new one when it raises StopIteration.",
                )


def _is_loader(tree: Tree, module: Module, node: ast.expr) -> bool:
    name = chain(node)
    return any(loader.module is module and loader.target == name for loader in tree.loaders) or name.endswith(
        ("loader", "dataloader", "data_loader")
    )
