"""Update all parameters with multi-tensor kernels."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="foreach",
    summary="Update all parameters with multi-tensor kernels.",
    effect="exact",
    answers=("device/optimizer-not-fused",),
    where_named=True,
    live="hotloop.remedy.live.optimizer:Foreach",
    source="hotloop.remedy.source.calls:foreach",
    words="give the optimizer foreach=True",
)
