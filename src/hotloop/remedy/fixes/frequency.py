"""What a step does beside training, done less often or later."""

from __future__ import annotations

from hotloop.remedy.remedy import Parameter, Remedy


def _every(words: str, default: int | None) -> Parameter:
    return Parameter(
        name="every", kind="count", words=words, default=default, minimum=1, finding_key="every_nth"
    )


DEFER_ITEM = Remedy(
    summary="Read losses and metrics a few steps late, so that no step waits for the device.",
    effect="exact",
    alters=(
        "the numbers stay; a clock that the script reads in the loop no longer waits for the device, and an "
        "error of the device is raised at a later line"
    ),
    source="hotloop.fix.deferring:defer_item",
    words=(
        "before: total += loss.item(); after: total += loss.detach().double(), and float(total) where it is "
        "read; a bar or a meter every N steps: if step % N == 0:"
    ),
)
LESS_FREQUENT_EVALUATION = Remedy(
    summary="Evaluate less often.",
    effect="semantic",
    alters="the best checkpoint is chosen among fewer evaluations",
    parameter=_every("run each Nth evaluation", None),
    source="hotloop.fix.cadence:rarer",
    words="keep one evaluation in {value}, or evaluate on a fixed subset between full ones",
)
LESS_FREQUENT_CHECKPOINT = Remedy(
    summary="Write checkpoints less often.",
    effect="semantic",
    alters="more work is lost when the run dies",
    parameter=_every("write each Nth checkpoint", 4),
    source="hotloop.fix.cadence:rarer",
    words="keep one checkpoint in {value}",
)
ASYNCHRONOUS_CHECKPOINT = Remedy(
    summary="Copy the state and write it in the background.",
    effect="exact",
    alters="the file is complete some seconds later; one that is overwritten before is not written",
    live="hotloop.remedy.live.checkpoint:AsynchronousCheckpoint",
    source="hotloop.fix.feeds:async_save",
    depends=True,
    words="hotloop.feed.async_save(state, path), or torch.distributed.checkpoint.async_save",
)
FEWER_IMAGES = Remedy(
    summary="Log images and figures less often.",
    effect="semantic",
    alters="fewer pictures are kept; wandb's own step axis gets shorter where calls give no step",
    parameter=_every("log each Nth time", 10),
    source="hotloop.fix.each_nth:images",
    words="log images one time in {value}",
)
FEWER_PRINTS = Remedy(
    summary="Print less often.",
    effect="semantic",
    alters="what the steps in between would have printed is missing on the screen and in redirected output",
    where_named=True,
    parameter=_every("print in each Nth step that prints", 50),
    source="hotloop.fix.each_nth:prints",
    words="print every {value} steps",
)
THROTTLED_LOGGING = Remedy(
    summary="Log scalars less often.",
    effect="semantic",
    alters=(
        "curves have fewer points, and may lack the last one; wandb's own step axis gets shorter where calls "
        "give no step"
    ),
    parameter=_every("log each Nth time, or after N updates", 10),
    source="hotloop.fix.each_nth:logging",
    words="log every {value} steps",
)
THROTTLED_PROGRESS = Remedy(
    summary="Refresh the progress bar less often.",
    effect="exact",
    where_named=True,
    live="hotloop.remedy.live.throttled:ThrottledProgress",
    source="hotloop.fix.calls:throttled_progress",
    words="give tqdm mininterval=1.0, and read the loss only when it is shown",
)
THROTTLE_VIEWER = Remedy(
    summary="Serve the viewer less often from the training loop.",
    effect="semantic",
    alters=(
        "everything the function does happens less often: the picture in the viewer is refreshed more "
        "seldom, and what it asks for (a pause) is seen later"
    ),
    words=(
        "before: viewer.poll() in each step; after: if step % 50 == 0: viewer.poll(), or only while a "
        "client is connected"
    ),
)
RARER_GC_COLLECT = Remedy(
    summary="Call the garbage collector by hand less often.",
    effect="exact",
    alters=(
        "objects that hold each other are freed later, after 64 MiB more of memory at the latest, and what "
        "they do when they go comes later; a call that is left out answers 0"
    ),
    where_named=True,
    parameter=_every("collect in each Nth update", 500),
    live="hotloop.remedy.live.collecting:RarerCollections",
    words="before: gc.collect() in each step; after: if step % {value} == 0: gc.collect(), or none at all",
)
