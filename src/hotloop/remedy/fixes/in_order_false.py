"""Hand out batches as they become ready, so that one slow sample holds up nothing."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="in-order-false",
    summary="Hand out batches as they become ready, so that one slow sample holds up nothing.",
    effect="semantic",
    alters="the order of batches differs from run to run",
    answers=("input/straggling-samples",),
    live="hotloop.remedy.live.loader:OutOfOrder",
    source="hotloop.remedy.source.loaders:in_order_false",
    words="give the DataLoader in_order=False (torch 2.6 and later)",
)
