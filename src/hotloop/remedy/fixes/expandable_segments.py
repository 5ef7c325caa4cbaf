"""Let torch's allocator grow its segments, against fragmentation."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="expandable-segments",
    summary="Let torch's allocator grow its segments, against fragmentation.",
    effect="exact",
    answers=("memory/fragmentation",),
    live="hotloop.remedy.live.allocator:ExpandableSegments",
    environment="hotloop.remedy.live.allocator:expandable",
    source="hotloop.remedy.source.allocator:expandable_segments",
    words=("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in the environment, before torch starts"),
)
