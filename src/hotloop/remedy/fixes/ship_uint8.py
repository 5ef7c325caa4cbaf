"""Let images travel to the device as the bytes that they were made of, and be there the floats that they are.

Source form only, for the reason of ``device_prefetch``: all of a batch is then on the device. It pays where
a device looks the values up; on a CPU that costs more than carrying bytes saves
(``benchmarks/feed/as_bytes.py``).
"""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="ship-uint8",
    summary="Let images travel from the workers to the device as bytes, and look their floats up there.",
    effect="exact",
    answers=("transfer/oversized-dtype",),
    source="hotloop.remedy.source.prefetching:ship_uint8",
    depends=True,
    words=(
        "wrap the loader: hotloop.feed.DevicePrefetcher(loader, device, as_bytes=True); or return uint8 from "
        "the dataset and convert on the device, which may round otherwise: x = x.to(device, "
        "non_blocking=True).float().div_(255)"
    ),
)
