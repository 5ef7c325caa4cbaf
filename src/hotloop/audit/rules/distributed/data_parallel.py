"""``distributed/data-parallel``: one process drives all GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop.audit.hit import hit
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "distributed/data-parallel"


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where nn.DataParallel wraps a model in a file that trains."""
    training = {region.module for region in tree.regions}
    for module in tree.modules:
        calls = list(module.calls_to("torch.nn.DataParallel", "torch.nn.parallel.DataParallel"))
        if calls and module in training:
            yield hit(
                ID,
                module,
                calls[0],
                "info",
                "nn.DataParallel drives all GPUs from one Python process: it copies the model to every "
                "GPU at "
                "every step, and one interpreter launches the work of all.",
                "Use DistributedDataParallel with one process per GPU (torchrun).",
                also=calls[1:],
            )
