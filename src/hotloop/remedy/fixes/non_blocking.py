"""Copy pinned batches to the device without waiting for the copy."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="non-blocking",
    summary="Copy pinned batches to the device without waiting for the copy.",
    effect="numeric",
    alters="a script that refills a pinned buffer of its own races with the copy",
    answers=(
        "transfer/blocking",
        "transfer/pageable",
    ),
    live="hotloop.remedy.live.transfer:NonBlocking",
    source="hotloop.remedy.source.calls:non_blocking",
    words="write batch.to(device, non_blocking=True) where the batch is pinned",
)
