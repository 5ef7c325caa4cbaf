"""``device/tf32-off`` in source: TF32 is switched off by hand."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop.audit.flags import flag_settings, in_training
from hotloop.audit.hit import hit
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "device/tf32-off"


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where allow_tf32 is set to False unconditionally, in a tree that trains."""
    if not tree.regions:
        return
    for module in tree.modules:
        for name, node, value in flag_settings(module):
            if name.endswith(".allow_tf32") and value is False and in_training(tree, module, node):
                yield hit(
                    ID,
                    module,
                    node,
                    "low",
                    f"{name} is switched off: float32 work on Ampere and later GPUs runs outside the "
                    f"Tensor Cores.",
                    "Remove the line, or call torch.set_float32_matmul_precision('high'); check the loss "
                    "once.",
                )
