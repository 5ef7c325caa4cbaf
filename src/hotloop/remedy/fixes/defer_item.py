"""Read losses and metrics a few steps late, so that no step waits for the device."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="defer-item",
    summary="Read losses and metrics a few steps late, so that no step waits for the device.",
    effect="exact",
    alters="logged values appear later",
    answers=("host/sync-in-step",),
    words="keep losses on the device (loss.detach()) and read them together every N steps",
)
