"""Read losses and metrics a few steps late, so that no step waits for the device.

No live form: what a sum or a list is, and who reads it when, is written in the source alone.
"""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="defer-item",
    summary="Read losses and metrics a few steps late, so that no step waits for the device.",
    effect="exact",
    alters=(
        "the numbers stay; a clock that the script reads in the loop no longer waits for the device, and an "
        "error of the device is raised at a later line"
    ),
    answers=("host/sync-in-step",),
    source="hotloop.remedy.source.deferring:defer_item",
    words="keep losses on the device (loss.detach()) and read them together every N steps",
)
