"""Compute forward passes in float16 where that is safe, with a gradient scaler."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="autocast-fp16",
    summary="Compute forward passes in float16 where that is safe, with a gradient scaler.",
    effect="numeric",
    alters=(
        "forward passes round to 11 bits of mantissa; an update whose gradients overflow is skipped, as a "
        "few at the start may be"
    ),
    answers=(
        "device/amp-off",
        "device/amp-not-in-effect",
    ),
    live="hotloop.remedy.live.scaling:AutocastFp16",
    source="hotloop.remedy.source.autocast:fp16",
    config_keys=("amp",),
    words=(
        "with torch.autocast(device_type, dtype=torch.float16): around the forward pass and the "
        "loss, and torch.amp.GradScaler around backward and step"
    ),
)
