"""Update a moving average of parameters by one interpolation for all of them.

No live form: what a loop does to each tensor is written in the source alone.
"""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="foreach-lerp",
    summary="Update a moving average of parameters by one interpolation for all of them.",
    effect="numeric",
    alters="a + (b - a) * w rounds otherwise than a * (1 - w) + b * w",
    answers=("host/python-in-step",),
    where_named=True,
    source="hotloop.remedy.source.foreach_loops:foreach_lerp",
    words="write the average as torch._foreach_lerp_(averages, params, 1 - decay) on lists of tensors",
)
