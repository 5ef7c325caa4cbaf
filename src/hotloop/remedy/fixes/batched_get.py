"""Read a whole batch in one call: a dataset with __getitems__ and indexed arrays.

Words only. What could be written without knowing who else makes batches of the dataset is ``__getitems__``
that indexes once and returns a list of samples; torch's collate stacks them again. It gains only where small
rows are cast (and there converting once gains as much), loses up to half for others, and gives nothing with
workers (``benchmarks/feed/batched_get.py``). Returning the batch gains, but needs a ``collate_fn`` in every
loader of that dataset.
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
    words=(
        "give the dataset __getitems__(self, indices) that indexes its arrays once and returns the batch, "
        "and every loader of it collate_fn=lambda batch: batch"
    ),
)
