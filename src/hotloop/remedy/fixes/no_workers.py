"""Make batches in the training process: for small samples in memory workers cost more than they save."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="no-workers",
    summary=(
        "Make batches in the training process: for small samples in memory workers cost more than they save."
    ),
    effect="exact",
    alters=(
        "random augmentation draws other numbers: it shares the loop's generator, from which the order of "
        "the next epoch is drawn as well"
    ),
    answers=(
        "input/worker-transport",
        "input/respawned-workers",
    ),
    live="hotloop.remedy.live.loader:NoWorkers",
    source="hotloop.remedy.source.loaders:no_workers",
    config_keys=("num_workers",),
    words=("give the DataLoader num_workers=0, and leave prefetch_factor and persistent_workers away"),
)
