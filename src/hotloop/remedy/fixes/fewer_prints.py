"""Print less often."""

from __future__ import annotations

from hotloop.remedy.remedy import Parameter, Remedy

REMEDY = Remedy(
    id="fewer-prints",
    summary="Print less often.",
    effect="semantic",
    alters="what the steps in between would have printed is missing on the screen and in redirected output",
    answers=("cadence/progress-output",),
    where_named=True,
    parameter=Parameter(
        name="every",
        kind="count",
        words="print in each Nth step that prints",
        default=50,
        minimum=1,
        finding_key="every_nth",
    ),
    live="hotloop.remedy.live.printed:FewerPrints",
    source="hotloop.remedy.source.each_nth:prints",
    words="print every {value} steps",
)
