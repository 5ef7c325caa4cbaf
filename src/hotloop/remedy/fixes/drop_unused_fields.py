"""Load, collate and ship only the fields the loop reads.

No live form: what a field would have held cannot be had once it was left out, and a script that reads it
after all, every thousand steps or in an evaluation, would fail or read something else.
"""

from __future__ import annotations

from hotloop.remedy.remedy import Parameter, Remedy

REMEDY = Remedy(
    id="drop-unused-fields",
    summary="Load, collate and ship only the fields the loop reads.",
    effect="exact",
    answers=("input/unused-fields",),
    parameter=Parameter(
        name="fields", kind="text", words="the fields to leave out, with commas", finding_key="unused"
    ),
    source="hotloop.remedy.source.fields:drop_unused_fields",
    words="return only the fields that the loop reads from __getitem__",
)
