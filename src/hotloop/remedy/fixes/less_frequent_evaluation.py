"""Evaluate less often."""

from __future__ import annotations

from hotloop.remedy.remedy import Parameter, Remedy

REMEDY = Remedy(
    id="less-frequent-evaluation",
    summary="Evaluate less often.",
    effect="semantic",
    alters="the best checkpoint is chosen among fewer evaluations",
    answers=("cadence/evaluation",),
    parameter=Parameter(
        name="every",
        kind="count",
        words="run each Nth evaluation",
        minimum=1,
        finding_key="every_nth",
    ),
    source="hotloop.remedy.source.cadence:rarer",
    words="keep one evaluation in {value}, or evaluate on a fixed subset between full ones",
)
