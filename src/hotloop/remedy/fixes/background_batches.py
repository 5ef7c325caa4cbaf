"""Make the next batch in the background while this one is computed."""

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
    words=(
        "make batches in a Dataset behind a DataLoader with workers, or in a thread that stays "
        "one batch ahead"
    ),
)
