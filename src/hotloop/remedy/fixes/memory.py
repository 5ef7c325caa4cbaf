"""Memory and its allocators."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

EXPANDABLE_SEGMENTS = Remedy(
    summary="Let torch's allocator grow its segments, against fragmentation.",
    effect="exact",
    source="hotloop.fix.flags:expandable_segments",
    words=("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in the environment, before torch starts"),
)
KEEP_FREED_MEMORY = Remedy(
    summary="Keep what a step frees for the next one, instead of taking it from the kernel anew.",
    effect="exact",
    alters=(
        "what is freed stays with the process (up to 2 GiB at the end of its heap, and what lies below): it "
        "may hold more memory"
    ),
    live="hotloop.remedy.live.flags:KeepFreedMemory",
    source="hotloop.fix.flags:keep_freed_memory",
    words=(
        "MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=2147483647 in the environment, or an "
        "allocator that keeps freed memory (jemalloc, tcmalloc) by LD_PRELOAD"
    ),
)
GC_FREEZE = Remedy(
    summary="Keep Python's garbage collector from pausing the loop.",
    effect="exact",
    live="hotloop.remedy.live.flags:GcFreeze",
    source="hotloop.fix.flags:gc_freeze",
    words="import gc; gc.collect(); gc.freeze() before the loop",
)
