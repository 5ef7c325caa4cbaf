"""Make the next batch in the background while this one is computed.

No live form: what the making reads, and that the loop changes none of it, shows in the source.
"""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="background-batches",
    summary="Make the next batch in the background while this one is computed.",
    effect="exact",
    answers=(
        "input/single-process",
        "input/slow-sample",
    ),
    source="hotloop.remedy.source.background:background_batches",
    rewrites=True,
    depends=True,
    words=(
        "make batches in a Dataset behind a DataLoader with workers, or in a thread that stays "
        "one batch ahead"
    ),
)
