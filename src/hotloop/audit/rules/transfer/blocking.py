"""``transfer/blocking`` in source: a pinned batch is copied while the host waits."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop.audit.hit import hit
from hotloop.audit.loaders import batch_moves, pins, region_loader
from hotloop.audit.module import argument
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "transfer/blocking"


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where the loop's loader pins its batches and their copies do not say non_blocking."""
    for region in tree.regions:
        loader = region_loader(tree.loaders, region)
        if loader is None or pins(loader) is not True:
            continue
        moves = [call for call in batch_moves(region) if argument(call, "non_blocking") is None]
        if moves:
            yield hit(
                ID,
                region.module,
                moves[0],
                "low",
                "The loader pins its batches, but the copy to the device does not pass non_blocking=True: "
                "the host "
                "waits for each copy.",
                "Pass non_blocking=True to each of these copies.",
                also=moves[1:],
            )
