"""``numerics/clip-before-unscale``: gradients are clipped while they are still multiplied by the loss
scale.
"""

from __future__ import annotations

from collections.abc import Iterator

from hotloop.audit.amp import scaled_backwards, scaler_of
from hotloop.audit.hit import hit
from hotloop.audit.module import chain
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "numerics/clip-before-unscale"
_CLIPS = ("clip_grad_norm_", "clip_grad_value_", "clip_grad_norm")


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where a step scales, clips and steps through the scaler, and unscales nowhere in the function."""
    for region in tree.regions:
        for backward in scaled_backwards(region):
            scaler = scaler_of(backward)
            steps = [call for call in region.steps if chain(call.func) == f"{scaler}.step"]
            around = region.function or region.module.tree
            if not steps or any(
                around is region.module.tree or around in region.module.ancestors(call)
                for name in ("unscale_", "unscale_gradients")
                for call in region.module.calls.get(name, ())
            ):
                continue
            for clip in region.calls_named(*_CLIPS):
                of_torch = region.module.dotted(clip.func).startswith("torch.nn.utils.")
                if of_torch and backward.lineno < clip.lineno < steps[-1].lineno:
                    yield hit(
                        ID,
                        region.module,
                        clip,
                        "high",
                        f"Gradients are clipped while they are still multiplied by the loss scale of "
                        f"{scaler}: "
                        "the limit is reached at every step, whatever the gradients are.",
                        f"Call {scaler}.unscale_(optimizer) between backward and clipping.",
                    )
                    break
