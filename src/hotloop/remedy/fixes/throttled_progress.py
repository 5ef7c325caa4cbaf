"""Refresh the progress bar less often."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="throttled-progress",
    summary="Refresh the progress bar less often.",
    effect="exact",
    answers=("cadence/progress-output",),
    where_named=True,
    live="hotloop.remedy.live.progress:ThrottledProgress",
    source="hotloop.remedy.source.progress:throttled_progress",
    words="give tqdm mininterval=1.0, and read the loss only when it is shown",
)
