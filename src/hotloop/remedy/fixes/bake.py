"""Run the deterministic part of the preprocessing once, into memory-mapped files.

No live form: a run would first read every sample to write it, and nobody would know of the files it leaves.
What ``cache-samples`` keeps for the length of a run, this keeps between runs.
"""

from __future__ import annotations

from hotloop.remedy.remedy import Parameter, Remedy

REMEDY = Remedy(
    id="bake",
    summary="Run the deterministic part of the preprocessing once, into memory-mapped files.",
    effect="exact",
    indexed=True,
    stores=True,
    answers=(
        "input/slow-sample",
        "input/slow-storage",
        "input/repeated-work",
        "input/per-sample-conversion",
        "memory/page-cache-thrash",
    ),
    parameter=Parameter(
        name="folder", kind="text", words="the folder to bake into; without a value CLASS.baked"
    ),
    source="hotloop.remedy.source.baking:bake",
    depends=True,
    words="hotloop bake MODULE:DATASET OUT, then train from hotloop.feed.Baked(OUT)",
)
