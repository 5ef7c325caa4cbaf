"""Settings of DataLoaders."""

from __future__ import annotations

from hotloop.remedy.remedy import Parameter, Remedy

NUM_WORKERS = Remedy(
    summary="Make batches in worker processes, as many as keep up with the step.",
    effect="exact",
    alters=(
        "random augmentation draws other numbers: each worker has its own seed; the order of samples stays, "
        "beyond the first epoch only if neither samples nor a sampler draw from the loop's generator; what "
        "samples or the loop leave in the dataset is not seen elsewhere before the next epoch"
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
    source="hotloop.fix.loaders:setting",
    config_keys=("num_workers",),
    words="give the DataLoader num_workers={value}",
    excludes=("no-workers",),
    redraws=True,
)
NO_WORKERS = Remedy(
    summary=(
        "Make batches in the training process: for small samples in memory workers cost more than they save."
    ),
    effect="exact",
    alters=(
        "random augmentation draws other numbers: it shares the loop's generator, from which the order of "
        "the next epoch is drawn as well"
    ),
    live="hotloop.remedy.live.loader:NoWorkers",
    source="hotloop.fix.loaders:no_workers",
    config_keys=("num_workers",),
    words=("give the DataLoader num_workers=0, and leave prefetch_factor and persistent_workers away"),
    redraws=True,
)
EVALUATION_WORKERS = Remedy(
    summary="Give the loader of an evaluation that waits for data the workers that suit it.",
    effect="exact",
    alters="random augmentation of evaluation draws other numbers, and so may training after it",
    parameter=Parameter(
        name="evaluation_workers",
        kind="count",
        words="workers of the loader that evaluates",
        default=1,
        finding_key="evaluation_workers",
    ),
    source="hotloop.fix.loaders:evaluation_workers",
    words="give the DataLoader that evaluates num_workers={value}",
    redraws=True,
)
PREFETCH_FACTOR = Remedy(
    summary="Let each worker run further ahead, so that a slow sample does not stop the loop.",
    effect="exact",
    parameter=Parameter(
        name="prefetch_factor",
        kind="count",
        words="batches each worker makes ahead",
        default=4,
        minimum=1,
        finding_key="prefetch_factor",
    ),
    live="hotloop.remedy.live.loader:PrefetchFactor",
    source="hotloop.fix.loaders:prefetch_factor",
    config_keys=("prefetch_factor",),
    words="give the DataLoader prefetch_factor={value}",
)
PERSISTENT_WORKERS = Remedy(
    summary="Keep the workers between epochs instead of starting them anew.",
    effect="exact",
    alters=(
        "state that the dataset keeps in a worker (counters, caches) lives on into the next epoch, and "
        "what the script changes in place between epochs, at the same length, is not seen in arrays of more "
        "than 1 MiB, other objects and containers of more than 1,000 items"
    ),
    live="hotloop.remedy.live.persistent:PersistentWorkers",
    source="hotloop.fix.loaders:persistent_workers",
    source_effect="semantic",
    config_keys=("persistent_workers",),
    words=(
        "give the DataLoader persistent_workers=True; order and augmentation differ from the "
        "second epoch on, because torch then draws no new seed per epoch (the live form draws it)"
    ),
)
PIN_MEMORY = Remedy(
    summary=("Put batches into page-locked memory, so that copies to the device are fast and asynchronous."),
    effect="exact",
    also=("transfer/pin-no-effect",),
    live="hotloop.remedy.live.loader:PinMemory",
    source="hotloop.fix.loaders:setting",
    config_keys=("pin_memory",),
    words="give the DataLoader pin_memory=True",
)
NON_BLOCKING = Remedy(
    summary="Copy pinned batches to the device without waiting for the copy.",
    effect="numeric",
    alters="a script that refills a pinned buffer of its own races with the copy",
    live="hotloop.remedy.live.transfer:NonBlocking",
    source="hotloop.fix.calls:non_blocking",
    words="write batch.to(device, non_blocking=True) where the batch is pinned",
)
IN_ORDER_FALSE = Remedy(
    summary="Hand out batches as they become ready, so that one slow sample holds up nothing.",
    effect="semantic",
    alters="the order of batches differs from run to run",
    live="hotloop.remedy.live.loader:OutOfOrder",
    source="hotloop.fix.loaders:in_order_false",
    words="give the DataLoader in_order=False (torch 2.6 and later)",
)
BATCH_SIZE = Remedy(
    summary="Train with larger batches, the learning rate scaled linearly.",
    effect="semantic",
    alters="fewer updates per epoch, another learning rate: another training",
    parameter=Parameter(name="batch_size", kind="count", words="samples per batch", minimum=1, needed=True),
    live="hotloop.remedy.live.loader:BatchSize",
    config_keys=("batch_size",),
    source="hotloop.fix.loaders:setting",
    words=("batch_size={value}, and the learning rate multiplied by the same factor, with a warm-up"),
)
RING_LOADER = Remedy(
    summary="Use hotloop.feed.Loader: workers write batches into recycled shared memory.",
    effect="exact",
    live="hotloop.remedy.live.ring:RingLoader",
    source="hotloop.fix.feeds:ring_loader",
    depends=True,
    words=("from hotloop.feed import Loader, and use it in place of torch.utils.data.DataLoader"),
)
DEVICE_PREFETCH = Remedy(
    summary="Copy the next batch to the device on a side stream while this one is computed.",
    effect="exact",
    alters=(
        "without workers the next batches are made before the step: what dataset and loop draw from one "
        "generator comes in another order"
    ),
    also=("transfer/blocking", "transfer/pageable"),
    source="hotloop.fix.feeds:device_prefetch",
    source_effect="numeric",
    depends=True,
    words="wrap the loader: hotloop.feed.DevicePrefetcher(loader, device)",
)
