"""Keep samples in shared memory after the first epoch, one copy for all workers."""

from __future__ import annotations

from hotloop.remedy.remedy import Parameter, Remedy

REMEDY = Remedy(
    id="cache-samples",
    summary="Keep samples in shared memory after the first epoch, one copy for all workers.",
    effect="exact",
    indexed=True,
    alters=(
        "samples stay as the first epoch read them; the cache ends where the script is seen to have changed "
        "them before an epoch: the dataset, what its code loads by name, or one of three samples that are "
        "read again (not before each short epoch); a change that shows in none of them is not seen (a few "
        "items of large arrays and containers, other files), nor one that is taken back before the epoch "
        "ends; a random sample among the first 256 that a process reads ends the cache too, one that is met "
        "later is repeated"
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
