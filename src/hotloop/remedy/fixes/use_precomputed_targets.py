"""Compute targets that never change once instead of in every step."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="use-precomputed-targets",
    summary="Compute targets that never change once instead of in every step.",
    effect="exact",
    answers=("host/recomputed-targets",),
    words=("compute the targets once per sample, in the dataset or in a table kept on the device"),
)
