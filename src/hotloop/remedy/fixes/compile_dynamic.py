"""Compile once for all shapes instead of once for each."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="compile-dynamic",
    summary="Compile once for all shapes instead of once for each.",
    effect="numeric",
    alters="kernels for any size round differently",
    answers=("device/recompiles",),
    source="hotloop.remedy.source.calls:compile_dynamic",
    words=("torch.compile(model, dynamic=True), or torch._dynamo.mark_dynamic on the dimension that varies"),
)
