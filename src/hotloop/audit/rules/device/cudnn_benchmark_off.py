"""``device/cudnn-benchmark-off`` in source: cuDNN is told not to search, or not used at all."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop.audit.flags import flag_settings, in_training
from hotloop.audit.hit import hit
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "device/cudnn-benchmark-off"
_WORDS = {
    "torch.backends.cudnn.benchmark": (
        "low",
        "cudnn.benchmark is switched off: cuDNN picks convolution kernels by rule instead of by measuring.",
        "Set it to True where input shapes stay the same; leave it off where they change at every step.",
    ),
    "torch.backends.cudnn.enabled": (
        "high",
        "cuDNN is switched off: convolutions, recurrent layers and batch norm take PyTorch's own, slower "
        "kernels.",
        "Remove the line.",
    ),
}


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where the flag is False unconditionally, is set nowhere else, and convolutions are used."""
    if not tree.regions:
        return
    for module in tree.modules:
        settings = list(flag_settings(module))
        names = [name for name, _, _ in settings]
        deterministic = any(name.endswith(".deterministic") and value is True for name, _, value in settings)
        for name, node, value in settings:
            if name not in _WORDS or value is not False or names.count(name) > 1:
                continue
            convolves = any(word.startswith(("Conv", "conv")) for word in tree.words)
            if (
                convolves
                and in_training(tree, module, node)
                and not (deterministic and name.endswith("benchmark"))
            ):
                severity, message, advice = _WORDS[name]
                yield hit(ID, module, node, severity, message, advice)  # type: ignore[arg-type]
