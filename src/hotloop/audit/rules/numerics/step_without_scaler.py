"""``numerics/step-without-scaler``: the loss is scaled, the optimizer steps on scaled gradients."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop.audit.amp import scaled_backwards, scaler_of
from hotloop.audit.hit import hit
from hotloop.audit.module import chain
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "numerics/step-without-scaler"


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where every backward of a region is scaled and nowhere in the file the scaler steps."""
    for region in tree.regions:
        scaled = list(scaled_backwards(region))
        if not scaled or len(scaled) != len(region.backwards):
            continue
        scaler = scaler_of(scaled[0])
        owners = {chain(call.func).removesuffix(".step") for call in region.module.calls.get("step", ())}
        plain = [call for call in region.steps if region.every_step(call)]
        if scaler in owners or not plain or region.module.calls.get("unscale_"):
            continue
        yield hit(
            ID,
            region.module,
            plain[0],
            "high",
            f"The loss is multiplied by {scaler}, but the optimizer steps without it: the gradients it "
            "uses are up to 65,536 times too large.",
            f"Replace {chain(plain[0].func)}() by {scaler}.step(optimizer) and {scaler}.update().",
        )
