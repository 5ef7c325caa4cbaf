"""``device/amp-off`` in source: nothing in the tree uses mixed precision."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop.audit.hit import hit
from hotloop.audit.tree import Tree, trains_on_gpu
from hotloop.findings import Finding

ID = "device/amp-off"
_MIXED = (
    "autocast amp apex bfloat16 float16 fp16 bf16 half mixed_precision GradScaler Accelerator Fabric Trainer "
    "deepspeed precision"
)


def check(tree: Tree) -> Iterator[Finding]:
    """Speak once, at the first training loop on CUDA, where no word of mixed precision occurs anywhere."""
    region = trains_on_gpu(tree)
    if region is not None and not tree.mentions(*_MIXED.split()):
        yield hit(
            ID,
            region.module,
            region.root,
            "info",
            "Training runs in float32; nothing in the audited files uses mixed precision.",
            "Try torch.autocast('cuda', dtype=torch.bfloat16) around the forward pass and the loss, and "
            "compare "
            "the loss curves.",
        )
