"""Use torch's own optimizer in the place of one written by hand that does the same.

Source form only: where the class is built shows what it is built with, and what else of it the script uses.
"""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="library-optimizer",
    summary="Build torch's optimizer, with fused kernels, in the place of one by hand that does the same.",
    effect="numeric",
    alters="updates round differently in the last bit; states saved of the old class do not fit torch's",
    answers=("device/optimizer-not-fused",),
    source="hotloop.remedy.source.optimizers.library:library_optimizer",
    rewrites=True,
    words=(
        "where an optimizer of torch does the same (Adam, AdamW, SGD, RMSprop, ...), build that, with "
        "fused=True; else update all parameters at once (torch._foreach_*)"
    ),
)
