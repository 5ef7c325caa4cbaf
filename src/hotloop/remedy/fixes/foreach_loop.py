"""Do each operation of a loop over parameters for all of them in one call.

No live form: what a loop does to each tensor is written in the source alone.
"""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="foreach-loop",
    summary="Do each operation of a loop over parameters for all of them in one call.",
    effect="exact",
    alters=(
        "what the loop computes on the way is there for all parameters at once, "
        "which may take as much memory as they do"
    ),
    answers=("host/python-in-step",),
    where_named=True,
    source="hotloop.remedy.source.loops.foreach:foreach_loop",
    rewrites=True,
    words="write the loop with torch._foreach_mul_, torch._foreach_add_ and their kin on lists of tensors",
)
