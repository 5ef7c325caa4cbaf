"""Use hotloop.feed.Loader: workers write batches into recycled shared memory."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="ring-loader",
    summary="Use hotloop.feed.Loader: workers write batches into recycled shared memory.",
    effect="exact",
    answers=("input/worker-transport",),
    live="hotloop.remedy.live.ring:RingLoader",
    source="hotloop.remedy.source.feeds:ring_loader",
    depends=True,
    words=("from hotloop.feed import Loader, and use it in place of torch.utils.data.DataLoader"),
)
