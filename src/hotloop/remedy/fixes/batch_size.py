"""Train with larger batches, the learning rate scaled linearly."""

from __future__ import annotations

from hotloop.remedy.remedy import Parameter, Remedy

REMEDY = Remedy(
    id="batch-size",
    summary="Train with larger batches, the learning rate scaled linearly.",
    effect="semantic",
    alters="fewer updates per epoch, another learning rate: another training",
    answers=("device/batch-too-small",),
    parameter=Parameter(
        name="batch_size", kind="count", words="samples per batch", minimum=1, finding_key="wanted_batch_size"
    ),
    live="hotloop.remedy.live.batches:BatchSize",
    config_keys=("batch_size",),
    source="hotloop.remedy.source.loaders:batch_size",
    words=("batch_size={value}, and the learning rate multiplied by the same factor, with a warm-up"),
)
