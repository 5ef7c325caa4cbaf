"""``device/compile-in-loop``: torch.compile is called at every step."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop.audit.hit import in_steps
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "device/compile-in-loop"


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where torch.compile() itself runs at every step."""
    return in_steps(
        ID,
        tree,
        lambda region, call: region.module.dotted(call.func) == "torch.compile",
        "medium",
        "torch.compile() is called at every step: each call makes a new wrapper whose guards, and often "
        "whose "
        "code, are made again.",
        "Compile once, before the loop.",
    )
