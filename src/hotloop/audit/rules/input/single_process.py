"""``input/single-process`` in source: samples are read from files in the training process."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop.audit.hit import hit
from hotloop.audit.reading import reads_files
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "input/single-process"


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where a training loader has no workers and its dataset surely reads a file per sample."""
    for loader in tree.loaders:
        if loader.role != "train" or loader.constant("num_workers", 0) != 0:
            continue
        how = reads_files(tree, loader)
        if how:
            yield hit(
                ID,
                loader.module,
                loader.call,
                "medium",
                f"The training loader has no workers and {how}: the training process reads and decodes every "
                "sample itself, and trains nothing meanwhile.",
                "Pass num_workers (start with 4 per GPU) and persistent_workers=True.",
            )
