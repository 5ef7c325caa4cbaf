"""``memory/zero-grad-to-zero``: gradients are filled with zeros instead of freed."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop.audit.hit import hit
from hotloop.audit.module import argument
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "memory/zero-grad-to-zero"


def check(tree: Tree) -> Iterator[Finding]:
    """Speak of a literal zero_grad(set_to_none=False) in a training region."""
    for region in tree.regions:
        for call in region.calls_named("zero_grad"):
            if region.module.constant(argument(call, "set_to_none", 0)) is False:
                yield hit(
                    ID,
                    region.module,
                    call,
                    "low",
                    "zero_grad(set_to_none=False) writes zeros over every gradient and keeps their memory "
                    "during "
                    "the forward pass; backward then reads them to add.",
                    "Leave set_to_none out (True since torch 2.0) unless code reads p.grad before backward.",
                )
