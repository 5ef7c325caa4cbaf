"""Evaluate less often."""

from __future__ import annotations

from hotloop.remedy.remedy import Parameter, Remedy

REMEDY = Remedy(
    id="less-frequent-evaluation",
    summary="Evaluate less often.",
    effect="semantic",
    alters="the best checkpoint is chosen among fewer evaluations",
    answers=("cadence/evaluation",),
    parameter=Parameter(name="every", kind="count", words="run each Nth evaluation", default=4, minimum=1),
    words=("evaluate every {value}th time it does now, or on a fixed subset between full evaluations"),
)
