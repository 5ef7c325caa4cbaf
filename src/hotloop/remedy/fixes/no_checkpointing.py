"""Keep activations instead of computing them again in backward."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="no-checkpointing",
    summary="Keep activations instead of computing them again in backward.",
    effect="numeric",
    alters="memory grows; values may differ in the last bit",
    answers=("device/recompute-checkpointing",),
    live="hotloop.remedy.live.checkpointing:NoCheckpointing",
    source="hotloop.remedy.source.recomputing:no_checkpointing",
    rewrites=True,
    words="leave torch.utils.checkpoint out where the activations fit into memory",
)
