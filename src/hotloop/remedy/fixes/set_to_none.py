"""Drop gradients instead of writing zeros over them."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="set-to-none",
    summary="Drop gradients instead of writing zeros over them.",
    effect="semantic",
    alters=(
        "a parameter without a gradient in a step is left alone, where zeros still apply momentum and "
        "weight decay; code that reads .grad after zero_grad finds None"
    ),
    answers=(),
    live="hotloop.remedy.live.optimizer:SetToNone",
    source="hotloop.remedy.source.calls:set_to_none",
    words="optimizer.zero_grad(set_to_none=True)",
)
