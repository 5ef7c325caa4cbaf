"""Let torch's allocator grow its segments, against fragmentation."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="expandable-segments",
    summary="Let torch's allocator grow its segments, against fragmentation.",
    effect="exact",
    answers=("memory/fragmentation",),
    words=("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in the environment, before torch starts"),
)
