"""Keep images as uint8 until they are on the device, and convert there."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="ship-uint8",
    summary="Keep images as uint8 until they are on the device, and convert there.",
    effect="numeric",
    alters="scaling on the device may round differently in the last bit",
    answers=("transfer/oversized-dtype",),
    words=(
        "return uint8 from the dataset and convert on the device: x = x.to(device, "
        "non_blocking=True).float().div_(255)"
    ),
)
