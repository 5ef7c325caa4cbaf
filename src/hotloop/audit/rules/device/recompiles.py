"""``device/recompiles`` in source: the last, smaller batch of an epoch is another shape to compile."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotloop.audit.hit import hit
from hotloop.audit.loaders import region_loader
from hotloop.audit.module import argument, chain
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "device/recompiles"


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where a model is compiled in the file, not dynamic, and its training loader keeps the last
    batch.
    """
    for region in tree.regions:
        module = region.module
        compiles = [c for c in module.calls_to("torch.compile") if argument(c, "dynamic") is None]
        loader = region_loader(tree.loaders, region)
        if not compiles or loader is None or loader.constant("drop_last", False) is not False:
            continue
        if loader.has("batch_sampler") is not False or loader.constant("batch_size", 1) in (None, 1):
            continue
        called = {chain(call.func) for call in region.calls}
        targets = {chain(t) for c in compiles for t in getattr(module.parents.get(c), "targets", [])}
        if called & targets and isinstance(loader.call, ast.Call):
            yield hit(
                ID,
                module,
                loader.call,
                "low",
                "The model is compiled and the last batch of an epoch may be smaller: the first one "
                "recompiles the "
                "model, with dynamic shapes from then on.",
                "Pass drop_last=True to the training loader.",
            )
