"""Compute forward passes in bfloat16 where that is safe (torch.autocast)."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="autocast-bf16",
    summary="Compute forward passes in bfloat16 where that is safe (torch.autocast).",
    effect="numeric",
    alters="forward passes round to 8 bits of mantissa; parameters stay float32",
    answers=(
        "device/amp-off",
        "device/amp-not-in-effect",
    ),
    live="hotloop.remedy.live.autocast:AutocastBf16",
    source="hotloop.remedy.source.autocast:bf16",
    config_keys=("amp",),
    words=("with torch.autocast(device_type, dtype=torch.bfloat16): around the forward pass and the loss"),
)
