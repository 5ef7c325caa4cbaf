"""Compute targets that never change once instead of in every step."""

from __future__ import annotations

from hotloop.remedy.remedy import Parameter, Remedy

REMEDY = Remedy(
    id="use-precomputed-targets",
    summary="Compute targets that never change once instead of in every step.",
    effect="exact",
    alters=(
        "kept results take memory, up to a quarter of what is free; a function that comes to give other "
        "results is noticed within 16 batches, one that does so for some samples only later"
    ),
    answers=("host/recomputed-targets",),
    live="hotloop.remedy.live.targets:PrecomputedTargets",
    parameter=Parameter(
        name="function",
        kind="text",
        words="FILE.py:FUNCTION, as the finding names it",
        finding_key="function",
        needed=True,
    ),
    words=("compute the targets once per sample, in the dataset or in a table kept on the device"),
)
