"""Lay images and convolution weights out with channels last."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="channels-last",
    summary="Lay images and convolution weights out with channels last.",
    effect="numeric",
    alters="other kernels round differently; dropout draws other masks",
    answers=("device/channels-last-off",),
    live="hotloop.remedy.live.layout:ChannelsLast",
    source="hotloop.remedy.source.models:channels_last",
    words=("model = model.to(memory_format=torch.channels_last), and the same for the input images"),
)
