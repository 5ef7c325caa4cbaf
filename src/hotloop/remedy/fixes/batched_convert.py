"""Convert the rows of a batch at once instead of one by one.

No live form: what a script makes of rows and puts together afterwards shows in its source alone.
"""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="batched-convert",
    summary="Make one tensor of all rows of a batch instead of one of each, stacked afterwards.",
    effect="exact",
    answers=(
        "input/slow-collate",
        "input/per-sample-conversion",
        "input/slow-sample",
        "host/python-in-step",
    ),
    where_named=True,
    source="hotloop.remedy.source.conversions:batched_convert",
    depends=True,
    rewrites=True,
    words=(
        "gather the rows first and convert them once: from hotloop.feed import stacked, and "
        "stacked(torch.tensor, rows) for torch.stack([torch.tensor(row) for row in rows]); or "
        "torch.from_numpy(numpy.array(rows, dtype=...)) where all rows are alike"
    ),
)
