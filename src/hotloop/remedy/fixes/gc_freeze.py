"""Keep Python's garbage collector from pausing the loop."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="gc-freeze",
    summary="Keep Python's garbage collector from pausing the loop.",
    effect="exact",
    answers=("host/gc-pauses",),
    live="hotloop.remedy.live.flags:GcFreeze",
    source="hotloop.remedy.source.flags:gc_freeze",
    words="import gc; gc.collect(); gc.freeze() before the loop",
)
