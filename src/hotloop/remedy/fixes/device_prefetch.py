"""Copy the next batch to the device on a side stream while this one is computed."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="device-prefetch",
    summary="Copy the next batch to the device on a side stream while this one is computed.",
    effect="exact",
    answers=(
        "transfer/blocking",
        "transfer/pageable",
    ),
    words="wrap the loader: hotloop.feed.DevicePrefetcher(loader, device)",
)
