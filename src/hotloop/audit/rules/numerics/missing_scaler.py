"""``numerics/missing-scaler``: float16 autocast without a gradient scaler; small gradients become zero."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop.audit.amp import autocast_blocks, is_half
from hotloop.audit.hit import hit
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "numerics/missing-scaler"
_SCALERS = (
    "GradScaler",
    "NativeScaler",
    "NativeScalerWithGradNormCount",
    "Accelerator",
    "Fabric",
    "scale_loss",
)


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where a training region autocasts to float16 and nothing in the tree scales gradients."""
    if tree.mentions(*_SCALERS) or tree.mentions("ShardedGradScaler", "deepspeed", "scaler"):
        return
    for region in tree.regions:
        for block, call in autocast_blocks(region.module):
            if region.contains(block) and is_half(region.module, call):
                yield hit(
                    ID,
                    region.module,
                    call,
                    "medium",
                    "The forward pass runs in float16, and nothing scales the loss: gradients below 6e-8 "
                    "become zero.",
                    "Use dtype=torch.bfloat16, or torch.amp.GradScaler around backward and step.",
                )
                break
