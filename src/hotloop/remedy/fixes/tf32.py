"""Let float32 matrix products and convolutions use TensorFloat-32 units."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="tf32",
    summary="Let float32 matrix products and convolutions use TensorFloat-32 units.",
    effect="numeric",
    alters="float32 products keep 10 bits of mantissa",
    answers=("device/tf32-off",),
    live="hotloop.remedy.live.flags:Tf32",
    source="hotloop.remedy.source.flags:tf32",
    config_keys=("tf32",),
    words=("torch.backends.cuda.matmul.allow_tf32 = True; torch.backends.cudnn.allow_tf32 = True"),
)
