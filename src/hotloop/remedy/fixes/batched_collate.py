"""Stack a batch with one call per field instead of sample by sample."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="batched-collate",
    summary="Stack a batch with one call per field instead of sample by sample.",
    effect="exact",
    answers=("input/slow-collate",),
    words=("in collate_fn stack each field once (torch.stack, numpy.stack), or leave collate_fn away"),
)
