"""Bound what a cache of samples may hold."""

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
    parameter=Parameter(name="memory", kind="text", words="bytes, for instance 8GiB", default="8GiB"),
    words=(
        "bound the cache: hotloop.feed.SampleCache(memory={value!r}), or functools.lru_cache with a maxsize"
    ),
)
