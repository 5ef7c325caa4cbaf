"""Serve the viewer less often from the training loop."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="throttle-viewer",
    summary="Serve the viewer less often from the training loop.",
    effect="semantic",
    alters="the picture in the viewer is refreshed less often",
    answers=("host/viewer-in-loop",),
    source="hotloop.remedy.source.each_nth:viewer",
    words="poll the viewer every 50 steps, or only while a client is connected",
)
