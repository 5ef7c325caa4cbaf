"""Copy the state and write it in the background."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="asynchronous-checkpoint",
    summary="Copy the state and write it in the background.",
    effect="exact",
    alters="the file is complete some seconds later",
    answers=("cadence/checkpoint",),
    words=(
        "copy the state dict to the CPU and write it in a thread, or torch.distributed.checkpoint.async_save"
    ),
)
