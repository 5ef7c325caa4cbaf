"""Give each process its share of the cores instead of all of them."""

from __future__ import annotations

from hotloop.remedy.remedy import Parameter, Remedy

REMEDY = Remedy(
    id="threads",
    summary="Give each process its share of the cores instead of all of them.",
    effect="numeric",
    alters="sums over threads round differently in the last bit",
    answers=("host/thread-oversubscription",),
    parameter=Parameter(
        name="num_threads",
        kind="count",
        words=(
            "threads of one process; without a value the cores it may use, divided by the processes "
            "of this node, or one less where loader workers need cores"
        ),
        minimum=1,
        finding_key="suggested",
    ),
    live="hotloop.remedy.live.flags:Threads",
    source="hotloop.remedy.source.flags:threads",
    words=("OMP_NUM_THREADS={value} in the environment, or torch.set_num_threads({value}) at the start"),
)
