"""``device/deterministic-on`` in source: deterministic kernels are asked for, always."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop.audit.flags import flag_settings, in_training
from hotloop.audit.hit import hit
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "device/deterministic-on"


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where cudnn.deterministic or use_deterministic_algorithms is on unconditionally, in a tree that
    trains.
    """
    if not tree.regions:
        return
    for module in tree.modules:
        nodes = [
            node
            for name, node, value in flag_settings(module)
            if name == "torch.backends.cudnn.deterministic" and value is True
        ]
        calls = [
            call
            for call in module.calls_to("torch.use_deterministic_algorithms")
            if call.args and module.constant(call.args[0]) is True
        ]
        sure = [node for node in [*nodes, *calls] if in_training(tree, module, node)]
        if sure:
            yield hit(
                ID,
                module,
                sure[0],
                "low",
                "Deterministic kernels are asked for in every run: cuDNN may not use its fastest "
                "convolutions, and "
                "results are repeated bit for bit only with equal seeds, batches and hardware.",
                "Put it behind an option for the runs that need it.",
                also=sure[1:],
            )
