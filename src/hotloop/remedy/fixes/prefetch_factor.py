"""Let each worker run further ahead, so that a slow sample does not stop the loop."""

from __future__ import annotations

from hotloop.remedy.remedy import Parameter, Remedy

REMEDY = Remedy(
    id="prefetch-factor",
    summary="Let each worker run further ahead, so that a slow sample does not stop the loop.",
    effect="exact",
    answers=(
        "input/shallow-prefetch",
        "input/straggling-samples",
        "memory/shared-memory-small",
    ),
    parameter=Parameter(
        name="prefetch_factor",
        kind="count",
        words="batches each worker makes ahead",
        default=4,
        minimum=1,
        finding_key="prefetch_factor",
    ),
    live="hotloop.remedy.live.loader:PrefetchFactor",
    source="hotloop.remedy.source.loaders:prefetch_factor",
    config_keys=("prefetch_factor",),
    words="give the DataLoader prefetch_factor={value}",
)
