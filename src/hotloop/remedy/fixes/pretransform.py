"""Transform the whole array once before training instead of sample by sample.

Words only: which array a transform may be given at once is what
``hotloop.feed.pretransform`` finds out by trying.
"""

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
