"""Keep samples in shared memory after the first epoch, one copy for all workers."""

from __future__ import annotations

from hotloop.remedy.remedy import Parameter, Remedy

REMEDY = Remedy(
    id="cache-samples",
    summary="Keep samples in shared memory after the first epoch, one copy for all workers.",
    effect="exact",
    indexed=True,
    alters=(
        "what the script changes in place between epochs, at the same length, is not seen in arrays, other "
        "objects and containers of more than 1,000 items: samples stay as the first epoch read them; any "
        "other change of the dataset ends the cache, and so does a random sample among the first 256 that a "
        "process reads; one that is met later is repeated"
    ),
    answers=(
        "input/slow-sample",
        "input/slow-storage",
        "input/repeated-work",
        "input/cache-thrash",
        "memory/page-cache-thrash",
    ),
    parameter=Parameter(
        name="memory",
        kind="size",
        words=("bytes the cache may use, for instance 4GiB; without a value what the machine can spare"),
    ),
    live="hotloop.remedy.live.ring:CacheSamples",
    source="hotloop.remedy.source.feeds:cache_samples",
    depends=True,
    words=(
        "wrap the dataset: hotloop.feed.CachedDataset(dataset); refused where a second reading of"
        " a sample differs"
    ),
)
