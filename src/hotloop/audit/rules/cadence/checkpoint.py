"""``cadence/checkpoint`` in source: a checkpoint is written at every step."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop.audit.hit import in_steps
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "cadence/checkpoint"


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where torch.save runs at every step, or every N up to 20."""
    return in_steps(
        ID,
        tree,
        lambda region, call: region.module.dotted(call.func) == "torch.save",
        "high",
        "torch.save runs {when}: training waits for the copy from the device and for the disk.",
        "Write a checkpoint every N steps, N such that it takes under 1 % of the time.",
        most=20,
    )
