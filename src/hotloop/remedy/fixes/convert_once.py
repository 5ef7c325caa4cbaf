"""Convert the arrays once in __init__ instead of in every __getitem__.

Words only: whether the whole is an array that memory holds (and no file that is read piece by piece, no list
of samples of many lengths), and who else reads it as it was, shows in no source.
"""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="convert-once",
    summary="Convert the arrays once in __init__ instead of in every __getitem__.",
    effect="exact",
    answers=("input/per-sample-conversion",),
    words=(
        "move the conversion from __getitem__ to __init__: convert the whole array once and index the result"
    ),
)
