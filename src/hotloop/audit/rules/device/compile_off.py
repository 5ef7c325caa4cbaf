"""``device/compile-off`` in source: nothing in the tree compiles the model."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop.audit.hit import hit
from hotloop.audit.tree import Tree, trains_on_gpu
from hotloop.findings import Finding

ID = "device/compile-off"


def check(tree: Tree) -> Iterator[Finding]:
    """Speak once, at the first training loop on CUDA, where neither compile nor a script or graph is made."""
    region = trains_on_gpu(tree)
    compiled = any(
        list(module.calls_to("torch.compile", "torch.jit.script", "torch.jit.trace"))
        for module in tree.modules
    )
    if (
        region is None
        or compiled
        or tree.mentions("dynamo", "CUDAGraph", "make_graphed_callables", "Trainer")
    ):
        return
    if any(
        call
        for module in tree.modules
        for call in module.calls.get("compile", ())
        if not module.dotted(call.func)
    ):
        return
    yield hit(
        ID,
        region.module,
        region.root,
        "info",
        "The model runs operation by operation; nothing in the audited files calls torch.compile.",
        "Try model = torch.compile(model) before the loop; `hotloop run` says whether launches hold the "
        "device up.",
    )
