"""``host/anomaly-detection``: autograd checks every operation, always."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop.audit.flags import in_training
from hotloop.audit.hit import hit
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "host/anomaly-detection"
_CALLS = (
    "torch.autograd.set_detect_anomaly",
    "torch.autograd.detect_anomaly",
    "torch.autograd.anomaly_mode.set_detect_anomaly",
)


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where anomaly detection is turned on unconditionally in a file that trains."""
    for module in {region.module: None for region in tree.regions}:
        for call in module.calls_to(*_CALLS):
            off = call.args and module.constant(call.args[0]) is not True
            if not off and not call.keywords and in_training(tree, module, call):
                yield hit(
                    ID,
                    module,
                    call,
                    "high",
                    "Anomaly detection is on: autograd records a Python stack for every operation and "
                    "checks every "
                    "gradient for NaN, which waits for the device each time.",
                    "Turn it on only while looking for a NaN.",
                )
