"""``host/debug-environment``: a debugging switch is left on in the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotloop.audit.flags import in_training
from hotloop.audit.hit import hit
from hotloop.audit.module import Module
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "host/debug-environment"
_SWITCHES = {
    ("CUDA_LAUNCH_BLOCKING", "1"): "the host waits for every kernel",
    ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"): "every tensor asks the driver for its memory",
    ("TORCH_DISTRIBUTED_DEBUG", "DETAIL"): "every collective is checked across ranks",
}


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where os.environ gets the switch unconditionally."""
    for module in tree.modules:
        for assign in module.assigns:
            key, value = _setting(module, assign)
            effect = _SWITCHES.get((key, value))
            if effect and in_training(tree, module, assign):
                yield hit(
                    ID,
                    module,
                    assign,
                    "high",
                    f"{key}={value} is set in every run: {effect}.",
                    "Remove the line; set it in the shell while looking for an error.",
                )


def _setting(module: Module, assign: ast.Assign) -> tuple[str, str]:
    target = assign.targets[0]
    if isinstance(target, ast.Subscript) and module.dotted(target.value) == "os.environ":
        return str(module.constant(target.slice)), str(module.constant(assign.value))
    return "", ""
