"""``config/deprecated-amp``: torch.cuda.amp, which PyTorch 2.4 deprecated."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop.audit.hit import hit
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "config/deprecated-amp"
_OLD = ("torch.cuda.amp.autocast", "torch.cuda.amp.GradScaler")


def check(tree: Tree) -> Iterator[Finding]:
    """Speak once per file that calls torch.cuda.amp.autocast or GradScaler."""
    for module in tree.modules:
        calls = sorted(module.calls_to(*_OLD), key=lambda call: call.lineno)
        if calls:
            name = module.dotted(calls[0].func)
            yield hit(
                ID,
                module,
                calls[0],
                "info",
                f"{name} is deprecated since PyTorch 2.4 and warns at every start.",
                f"Write torch.amp.{name.rpartition('.')[2]}('cuda', …).",
                also=calls[1:],
            )
