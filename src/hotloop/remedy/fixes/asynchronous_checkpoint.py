"""Copy the state and write it in the background."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="asynchronous-checkpoint",
    summary="Copy the state and write it in the background.",
    effect="exact",
    alters="the file is complete some seconds later; one that is overwritten before is not written",
    answers=("cadence/checkpoint",),
    live="hotloop.remedy.live.checkpoint:AsynchronousCheckpoint",
    source="hotloop.remedy.source.feeds:async_save",
    depends=True,
    words="hotloop.feed.async_save(state, path), or torch.distributed.checkpoint.async_save",
)
