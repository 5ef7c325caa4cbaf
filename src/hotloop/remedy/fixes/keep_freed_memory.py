"""Keep what a step frees for the next one, instead of taking it from the kernel anew."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="keep-freed-memory",
    summary="Keep what a step frees for the next one, instead of taking it from the kernel anew.",
    effect="exact",
    alters=(
        "what is freed stays with the process (up to 2 GiB at the end of its heap, and what lies below): it "
        "may hold more memory"
    ),
    answers=("memory/page-faults",),
    live="hotloop.remedy.live.flags:KeepFreedMemory",
    source="hotloop.remedy.source.flags:keep_freed_memory",
    words=(
        "MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=2147483647 in the environment, or an "
        "allocator that keeps freed memory (jemalloc, tcmalloc) by LD_PRELOAD"
    ),
)
