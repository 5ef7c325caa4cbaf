"""Transform what the dataset holds once, where it is built, instead of sample by sample.

No live form: which array a scaler in ``__getitem__`` is given, and that nothing else reads or changes it,
shows in the source, not in the samples that were seen.
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
    source="hotloop.remedy.source.pretransforming:pretransform",
    rewrites=True,
    words=(
        "before training: data = hotloop.feed.pretransform(data, transform), and leave the "
        "transform out of __getitem__"
    ),
)
