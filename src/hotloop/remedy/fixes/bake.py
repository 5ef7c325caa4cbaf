"""Run the deterministic part of the preprocessing once, into memory-mapped files."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="bake",
    summary="Run the deterministic part of the preprocessing once, into memory-mapped files.",
    effect="exact",
    indexed=True,
    answers=(
        "input/slow-sample",
        "input/slow-storage",
        "input/repeated-work",
        "input/per-sample-conversion",
        "memory/page-cache-thrash",
    ),
    words="hotloop bake MODULE:DATASET OUT, then train from hotloop.feed.Baked(OUT)",
)
