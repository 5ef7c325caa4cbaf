"""Call the garbage collector by hand less often."""

from __future__ import annotations

from hotloop.remedy.remedy import Parameter, Remedy

REMEDY = Remedy(
    id="rarer-gc-collect",
    summary="Call the garbage collector by hand less often.",
    effect="exact",
    alters=(
        "objects that hold each other are freed later, and what they do when they go comes later: live after "
        "64 MiB more of memory at the latest, in source by Python's own collections until the next call"
    ),
    answers=("host/gc-pauses",),
    where_named=True,
    parameter=Parameter(
        name="every", kind="count", words="collect each Nth time, or after N updates", default=500, minimum=1
    ),
    live="hotloop.remedy.live.collecting:RarerCollections",
    source="hotloop.remedy.source.each_nth:collecting",
    words="take gc.collect() out of the step, or write if step % {value} == 0: gc.collect()",
)
