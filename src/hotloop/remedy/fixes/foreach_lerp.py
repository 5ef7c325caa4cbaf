"""Do each operation of a loop over parameters for all of them, and a moving average as one interpolation.

No live form: what a loop does to each tensor is written in the source alone.
"""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="foreach-lerp",
    summary="Do a loop over parameters for all of them in one call, a moving average as one interpolation.",
    effect="numeric",
    alters=(
        "a + (b - a) * w rounds otherwise than a * (1 - w) + b * w, and list forms may on a GPU; "
        "a tensor that model and average share stays what it is"
    ),
    answers=("host/python-in-step",),
    where_named=True,
    source="hotloop.remedy.source.loops.foreach:foreach_lerp",
    rewrites=True,
    words="write the average as torch._foreach_lerp_(averages, params, 1 - decay) on lists of tensors",
)
