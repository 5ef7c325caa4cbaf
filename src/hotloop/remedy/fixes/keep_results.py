"""Keep what a function gave for its arguments, where the input calls it with the same ones again."""

from __future__ import annotations

from hotloop.remedy.remedy import Parameter, Remedy

REMEDY = Remedy(
    id="keep-results",
    summary="Keep what a function of the input gave for its arguments, and give it again.",
    effect="exact",
    alters=(
        "kept results take memory, up to a quarter of what is free; where a function reads more than its "
        "arguments (attributes, tables, arrays), what that reaches is looked at when an epoch begins, and as "
        "often besides as 2 % of the time allow: not seen is what changes at the same length in containers "
        "of more than 1,000 items and arrays of more than 1 MiB, and files that no argument names; one in 16 "
        "of its calls, later in 64, is made all the same and the first other result ends it: kept ones "
        "count till then"
    ),
    answers=(
        "input/slow-sample",
        "input/slow-collate",
        "input/single-process",
    ),
    where_named=True,
    live="hotloop.remedy.live.keeping:KeepResults",
    parameter=Parameter(
        name="function",
        kind="text",
        words="FILE.py:FUNCTION, as the finding names it",
        finding_key="function",
        needed=True,
    ),
    words=(
        "keep what it gives in a dictionary by its arguments (functools.lru_cache where they are hashable "
        "and what it gives is not changed), or make it once before training"
    ),
)
