"""``numerics/scaler-not-updated``: a gradient scaler steps, and its scale is never updated."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop.audit.amp import scaled_backwards, scaler_of
from hotloop.audit.hit import hit
from hotloop.audit.module import chain
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "numerics/scaler-not-updated"


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where a region scales and steps through a scaler and the file never updates it."""
    for region in tree.regions:
        scaler = next((scaler_of(call) for call in scaled_backwards(region)), "")
        steps = [call for call in region.steps if scaler and chain(call.func) == f"{scaler}.step"]
        updates = [chain(call.func) for call in region.module.calls.get("update", ())]
        if steps and f"{scaler}.update" not in updates:
            yield hit(
                ID,
                region.module,
                steps[-1],
                "high",
                f"{scaler}.update() is never called: after an overflow the scale stays, and every later "
                "step overflows and is skipped again.",
                f"Call {scaler}.update() after {scaler}.step(optimizer).",
            )
