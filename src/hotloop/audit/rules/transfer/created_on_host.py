"""``transfer/created-on-host``: a tensor is made on the host and moved, at every step."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotloop.audit.hit import in_steps
from hotloop.audit.module import Module, argument
from hotloop.audit.tree import Tree, uses_cuda
from hotloop.findings import Finding

ID = "transfer/created-on-host"
_MAKERS = frozenset(
    f"torch.{name}"
    for name in ["zeros", "ones", "full", "rand", "randn", "randint", "arange", "linspace", "empty", "eye"]
)


def check(tree: Tree) -> Iterator[Finding]:
    """Speak of torch.zeros(...).to(device) and the like at every step."""
    return in_steps(
        ID,
        tree,
        lambda region, call: uses_cuda(region.module) and _moved(region.module, call),
        "low",
        "A tensor is made on the host and then copied to the device at every step; from pageable memory "
        "the host "
        "waits for the copy.",
        "Make it there: pass device=… to the function that makes it.",
    )


def _moved(module: Module, call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("to", "cuda"):
        return False
    made = call.func.value
    if not isinstance(made, ast.Call) or module.dotted(made.func) not in _MAKERS or argument(made, "device"):
        return False
    if call.func.attr == "cuda":
        return True
    target = ast.unparse(call.args[0]) if call.args else ""
    return "cuda" in target or target.endswith("device")
