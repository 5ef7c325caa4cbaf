"""Serve the viewer less often from the training loop."""

from __future__ import annotations

from hotloop.remedy.remedy import Parameter, Remedy

REMEDY = Remedy(
    id="throttle-viewer",
    summary="Serve the viewer less often from the training loop.",
    effect="semantic",
    alters=(
        "everything the function does happens less often: the picture in the viewer is refreshed more "
        "seldom, and what it asks for (a pause) is seen later"
    ),
    answers=("host/viewer-in-loop",),
    parameter=Parameter(
        name="function",
        kind="text",
        words="FILE.py:FUNCTION, as the finding names it",
        finding_key="function",
        needed=True,
    ),
    live="hotloop.remedy.live.viewing:ThrottledViewer",
    source="hotloop.remedy.source.each_nth:viewer",
    words="poll the viewer every 50 steps, or only while a client is connected",
)
