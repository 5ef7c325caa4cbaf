"""``config/unsafe-load``: torch.load may run code that a checkpoint brings."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop.audit.hit import hit
from hotloop.audit.module import argument
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "config/unsafe-load"


def check(tree: Tree) -> Iterator[Finding]:
    """Speak of a literal torch.load(weights_only=False)."""
    for module in tree.modules:
        calls = [
            call
            for call in module.calls_to("torch.load")
            if module.constant(argument(call, "weights_only")) is False
        ]
        if calls:
            yield hit(
                ID,
                module,
                calls[0],
                "low",
                "torch.load(weights_only=False) runs whatever code the file holds.",
                "Leave it out (True since torch 2.6); allow single classes with "
                "torch.serialization.add_safe_globals. For files of your own making, ignore this line.",
                also=calls[1:],
            )
