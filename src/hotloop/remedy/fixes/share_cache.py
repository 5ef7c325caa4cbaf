"""Share one cache of what the files hold between all workers."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="share-cache",
    summary="Share one cache of what the files hold between all workers.",
    effect="exact",
    answers=("input/cache-thrash",),
    words="hotloop.feed.cached(DATASET, BYTES) around what reads the files; convert what comes out of it",
)
