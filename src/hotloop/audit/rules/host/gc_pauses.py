"""``host/gc-pauses`` in source: the garbage collector is run by hand at every step."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop.audit.hit import in_steps
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "host/gc-pauses"


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where gc.collect() runs at every step."""
    return in_steps(
        ID,
        tree,
        lambda region, call: region.module.dotted(call.func) == "gc.collect",
        "medium",
        "gc.collect() runs at every step: it visits every Python object of the process, 10 ms to 500 ms with "
        "torch imported.",
        "Remove it, or run it once per epoch; tensors are freed by their reference counts, without it.",
    )
