"""``transfer/pageable`` in source: non_blocking copies from memory that is not pinned."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop.audit.hit import hit
from hotloop.audit.loaders import batch_moves, pins, region_loader
from hotloop.audit.module import argument
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "transfer/pageable"


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where the loop's loader surely does not pin, and its batches are moved to CUDA."""
    for region in tree.regions:
        loader = region_loader(tree.loaders, region)
        moves = list(batch_moves(region))
        if (
            loader is None
            or pins(loader) is not False
            or not moves
            or "cuda" not in region.module.source.text
        ):
            continue
        hopeful = [c for c in moves if region.module.constant(argument(c, "non_blocking")) is True]
        words = " non_blocking=True has no effect on such memory:" if hopeful else ""
        yield hit(
            ID,
            region.module,
            (hopeful or moves)[0],
            "low",
            f"The loader (line {loader.call.lineno}) does not pin its batches.{words} the host waits for "
            f"each copy "
            "to the device, which goes through a buffer of the driver.".replace(". the", ". The"),
            "Pass pin_memory=True to the DataLoader and non_blocking=True to the copies.",
        )
