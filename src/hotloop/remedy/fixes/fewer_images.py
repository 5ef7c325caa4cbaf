"""Log images and figures less often."""

from __future__ import annotations

from hotloop.remedy.remedy import Parameter, Remedy

REMEDY = Remedy(
    id="fewer-images",
    summary="Log images and figures less often.",
    effect="semantic",
    alters="fewer pictures are kept; wandb's own step axis gets shorter where calls give no step",
    answers=("cadence/images",),
    parameter=Parameter(
        name="every", kind="count", words="log each Nth time", default=10, minimum=1, finding_key="every_nth"
    ),
    live="hotloop.remedy.live.logged:FewerImages",
    source="hotloop.remedy.source.each_nth:images",
    words="log images one time in {value}",
)
