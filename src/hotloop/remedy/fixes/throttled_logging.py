"""Log scalars less often."""

from __future__ import annotations

from hotloop.remedy.remedy import Parameter, Remedy

REMEDY = Remedy(
    id="throttled-logging",
    summary="Log scalars less often.",
    effect="semantic",
    alters=(
        "curves have fewer points, and may lack the last one; wandb's own step axis gets shorter where calls "
        "give no step"
    ),
    answers=("cadence/logging",),
    parameter=Parameter(
        name="every",
        kind="count",
        words="log each Nth time, or after N updates",
        default=10,
        minimum=1,
        finding_key="every_nth",
    ),
    live="hotloop.remedy.live.logged:FewerScalars",
    source="hotloop.remedy.source.each_nth:logging",
    words="log every {value} steps",
)
