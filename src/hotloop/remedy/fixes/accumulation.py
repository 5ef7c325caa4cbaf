"""Add up gradients over several small batches before an update."""

from __future__ import annotations

from hotloop.remedy.remedy import Parameter, Remedy

REMEDY = Remedy(
    id="accumulation",
    summary="Add up gradients over several small batches before an update.",
    effect="semantic",
    alters="the effective batch is larger: fewer updates per epoch",
    answers=(),
    live="hotloop.remedy.live.accumulating:Accumulate",
    parameter=Parameter(name="steps", kind="count", words="batches per update", default=4, minimum=1),
    config_keys=("gradient_accumulation",),
    words=(
        "hotloop.feed.Accumulation(optimizer, {value}), with the learning rate scaled for the larger batch"
    ),
)
