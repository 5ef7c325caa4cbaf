"""Transform the whole array once before training instead of sample by sample."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="pretransform",
    summary="Transform the whole array once before training instead of sample by sample.",
    effect="exact",
    answers=(
        "input/per-sample-conversion",
        "input/slow-sample",
        "input/repeated-work",
    ),
    words=(
        "before training: data = hotloop.feed.pretransform(data, transform), and leave the "
        "transform out of __getitem__"
    ),
)
