"""``memory/empty-cache-in-step``: cached device memory is given back at every step."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop.audit.hit import in_steps
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "memory/empty-cache-in-step"


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where torch.cuda.empty_cache() runs at every step."""
    return in_steps(
        ID,
        tree,
        lambda region, call: region.module.dotted(call.func) == "torch.cuda.empty_cache",
        "medium",
        "torch.cuda.empty_cache() runs at every step: it waits for the device and gives memory back that the "
        "next step asks for again.",
        "Remove it; PyTorch reuses what it caches.",
    )
