"""Write checkpoints less often."""

from __future__ import annotations

from hotloop.remedy.remedy import Parameter, Remedy

REMEDY = Remedy(
    id="less-frequent-checkpoint",
    summary="Write checkpoints less often.",
    effect="semantic",
    alters="more work is lost when the run dies",
    answers=("cadence/checkpoint",),
    parameter=Parameter(
        name="every",
        kind="count",
        words="write each Nth checkpoint",
        default=4,
        minimum=1,
        finding_key="every_nth",
    ),
    source="hotloop.remedy.source.cadence:rarer",
    words="keep one checkpoint in {value}",
)
