"""Make batches in worker processes, as many as keep up with the step."""

from __future__ import annotations

from hotloop.remedy.remedy import Parameter, Remedy

REMEDY = Remedy(
    id="num-workers",
    summary="Make batches in worker processes, as many as keep up with the step.",
    effect="exact",
    alters=(
        "random augmentation draws other numbers: each worker has its own seed; the order of samples stays, "
        "beyond the first epoch only if neither samples nor a sampler draw from the loop's generator; what "
        "samples or the loop leave in the dataset is not seen elsewhere before the next epoch"
    ),
    answers=(
        "input/single-process",
        "input/too-few-workers",
        "input/too-many-workers",
        "config/ignored-value",
        "config/too-many-workers-for-cores",
    ),
    parameter=Parameter(
        name="num_workers",
        kind="count",
        words=(
            "without a value: one worker per core this process may use, less one for the loop, at least one"
        ),
        finding_key="num_workers",
    ),
    live="hotloop.remedy.live.loader:NumWorkers",
    source="hotloop.remedy.source.loaders:num_workers",
    config_keys=("num_workers",),
    words="give the DataLoader num_workers={value}",
)
