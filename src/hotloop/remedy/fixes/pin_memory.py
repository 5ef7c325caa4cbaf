"""Put batches into page-locked memory, so that copies to the device are fast and asynchronous."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="pin-memory",
    summary=("Put batches into page-locked memory, so that copies to the device are fast and asynchronous."),
    effect="exact",
    answers=(
        "transfer/pageable",
        "transfer/pin-no-effect",
    ),
    live="hotloop.remedy.live.loader:PinMemory",
    source="hotloop.remedy.source.loaders:pin_memory",
    config_keys=("pin_memory",),
    words="give the DataLoader pin_memory=True",
)
