"""``config/deprecated-amp``: torch.cuda.amp, which PyTorch 2.4 deprecated."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotloop.audit.hit import hit
from hotloop.audit.module import Module
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "config/deprecated-amp"
_OLD = ("torch.cuda.amp.autocast", "torch.cuda.amp.GradScaler")


def check(tree: Tree) -> Iterator[Finding]:
    """Speak once per file that calls torch.cuda.amp.autocast or GradScaler."""
    for module in tree.modules:
        calls = sorted(
            (call for call in module.calls_to(*_OLD) if not _by_version(module, call)),
            key=lambda call: call.lineno,
        )
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


def _by_version(module: Module, call: ast.Call) -> bool:
    """Whether a condition on versions or attributes chooses this call."""
    tests = (above.test for above in module.ancestors(call) if isinstance(above, ast.If | ast.IfExp))
    return any(word in ast.unparse(test) for test in tests for word in ("version", "hasattr", "is_torch"))
