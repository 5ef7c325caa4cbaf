"""Update all parameters with fused kernels."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="fused-optimizer",
    summary="Update all parameters with fused kernels.",
    effect="numeric",
    alters="fused updates round differently in the last bit",
    answers=("device/optimizer-not-fused",),
    live="hotloop.remedy.live.optimizer:FusedOptimizer",
    source="hotloop.remedy.source.calls:fused_optimizer",
    words="give the optimizer fused=True",
)
