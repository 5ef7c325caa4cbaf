"""Read a whole batch in one call: a dataset with __getitems__ and indexed arrays.

Words only: whether what is indexed takes many indices at once, and gives the same then, shows in no source.
"""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="batched-get",
    summary="Read a whole batch in one call: a dataset with __getitems__ and indexed arrays.",
    effect="exact",
    answers=(
        "input/slow-collate",
        "input/per-sample-conversion",
    ),
    words=("give the dataset __getitems__(self, indices) that indexes its arrays once for the whole batch"),
)
