"""Cut a sample's crop before anything is converted or enlarged."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="crop-first",
    summary="Cut a sample's crop before anything is converted or enlarged.",
    effect="exact",
    answers=("input/per-sample-conversion",),
    words="cut the crop first, with a margin where values depend on pixels outside, and convert only that",
)
