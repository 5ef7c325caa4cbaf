"""``input/shallow-prefetch`` in source: each worker may have one batch ready."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop.audit.hit import hit
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "input/shallow-prefetch"


def check(tree: Tree) -> Iterator[Finding]:
    """Speak of a literal prefetch_factor=1 on a loader with workers."""
    for loader in tree.loaders:
        if loader.role != "evaluation" and loader.constant("prefetch_factor", 2) == 1:
            yield hit(
                ID,
                loader.module,
                loader.call,
                "low",
                "prefetch_factor=1: a worker makes its next batch only when its last one was taken, so "
                "one slow "
                "sample stops the step.",
                "Leave prefetch_factor out (2), or raise it while memory allows.",
            )
