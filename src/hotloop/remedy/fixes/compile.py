"""Compile the model (torch.compile)."""

from __future__ import annotations

from hotloop.remedy.remedy import Parameter, Remedy

REMEDY = Remedy(
    id="compile",
    summary="Compile the model (torch.compile).",
    effect="numeric",
    alters="fused kernels round differently; dropout draws other masks",
    answers=(
        "device/compile-off",
        "host/launch-bound",
    ),
    parameter=Parameter(
        name="mode",
        kind="text",
        words="a mode of torch.compile",
        default="default",
        choices=("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"),
    ),
    live="hotloop.remedy.live.compiled:Compile",
    source="hotloop.remedy.source.models:compiled",
    config_keys=("compile",),
    words=("model.compile() after the model is on its device, or torch.compile(model, mode={value!r})"),
)
