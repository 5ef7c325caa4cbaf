"""``distributed/barrier-in-step``: all ranks wait for each other at every step, once more."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop.audit.hit import in_steps
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "distributed/barrier-in-step"


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where torch.distributed.barrier() runs at every step."""
    return in_steps(
        ID,
        tree,
        lambda region, call: region.module.dotted(call.func) == "torch.distributed.barrier",
        "medium",
        "torch.distributed.barrier() runs at every step: the host of every rank waits for all others, "
        "which the "
        "reduction of the gradients already does on the device.",
        "Remove it, or keep it around checkpoints and evaluation.",
    )
