"""``numerics/backward-in-autocast``: ``backward`` stands inside the autocast block."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop.audit.amp import autocast_blocks
from hotloop.audit.hit import hit
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "numerics/backward-in-autocast"


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where a training region's ``backward`` is lexically inside ``with autocast``."""
    for region in tree.regions:
        blocks = {block for block, _ in autocast_blocks(region.module)}
        for call in region.backwards:
            if any(above in blocks for above in region.module.ancestors(call)):
                yield hit(
                    ID,
                    region.module,
                    call,
                    "low",
                    "backward() runs inside the autocast block; PyTorch advises against it: the backward "
                    "pass "
                    "takes each operation's type from the forward pass by itself.",
                    "Let only the forward pass and the loss stand inside `with autocast`.",
                )
                break
