"""Bound what a cache of samples may hold.

Only a cache of ``hotloop.feed`` is bounded in the source. A bound in bytes is no number of entries, which is
what ``lru_cache`` takes, and how large one is shows in no source. In shuffled epochs a smaller LRU hardly
hits (docs/guides/hit-rate.md): which cache to have is a choice. No live form: a cache cannot be exchanged
while workers fill it.
"""

from __future__ import annotations

from hotloop.remedy.remedy import Parameter, Remedy

REMEDY = Remedy(
    id="memory-limit",
    summary="Bound what a cache of samples may hold.",
    effect="exact",
    answers=(
        "memory/unbounded-cache",
        "memory/host-growth",
    ),
    parameter=Parameter(name="memory", kind="size", words="bytes, for instance 8GiB", default="8GiB"),
    source="hotloop.remedy.source.feeds:memory_limit",
    words=(
        "bound the cache: hotloop.feed.cached(dataset, max_bytes={value!r}) in its place, or "
        "functools.lru_cache with a maxsize"
    ),
)
