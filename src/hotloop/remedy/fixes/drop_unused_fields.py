"""Load, collate and ship only the fields the loop reads."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="drop-unused-fields",
    summary="Load, collate and ship only the fields the loop reads.",
    effect="exact",
    answers=("input/unused-fields",),
    words="return only the fields that the loop reads from __getitem__",
)
