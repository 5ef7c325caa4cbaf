"""Keep the workers between epochs instead of starting them anew."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="persistent-workers",
    summary="Keep the workers between epochs instead of starting them anew.",
    effect="exact",
    alters=(
        "state that the dataset keeps in a worker (counters, caches) lives on into the next epoch, and "
        "what the script changes in place between epochs, at the same length, is not seen in arrays of more "
        "than 1 MiB, other objects and containers of more than 1,000 items"
    ),
    answers=(
        "input/respawned-workers",
        "input/cold-start",
    ),
    live="hotloop.remedy.live.persistent:PersistentWorkers",
    source="hotloop.remedy.source.loaders:persistent_workers",
    source_effect="numeric",
    config_keys=("persistent_workers",),
    words=(
        "give the DataLoader persistent_workers=True; order and augmentation differ from the "
        "second epoch on, because torch then draws no new seed per epoch (the live form draws it)"
    ),
)
