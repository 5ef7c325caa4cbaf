"""Copy the next batch to the device on a side stream while this one is computed.

Source form only: a script that reads a part of its batch on the host would fail with all of it on the device,
and which parts it reads shows in its source, not in the steps that were seen.
"""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="device-prefetch",
    summary="Copy the next batch to the device on a side stream while this one is computed.",
    effect="exact",
    alters=(
        "without workers the next batches are made before the step: what dataset and loop draw from one "
        "generator comes in another order"
    ),
    answers=(
        "transfer/blocking",
        "transfer/pageable",
    ),
    source="hotloop.remedy.source.prefetching:device_prefetch",
    source_effect="numeric",
    depends=True,
    words="wrap the loader: hotloop.feed.DevicePrefetcher(loader, device)",
)
