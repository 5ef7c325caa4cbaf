"""Work on samples that could be done once: conversions one by one, the same samples made every epoch."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop.diagnose.collating import collate_share, in_collate, per_sample_lines
from hotloop.diagnose.costs import feed_of, one_batch_each
from hotloop.diagnose.evidence import Evidence, rule, spot
from hotloop.diagnose.groups import hottest, of_kind, quoted
from hotloop.diagnose.line_kinds import by_rows, is_conversion, is_random, may_vary, only_same
from hotloop.diagnose.making import of_making, takes
from hotloop.diagnose.rules.input import slow_storage
from hotloop.diagnose.source import dataset_text
from hotloop.findings import Finding
from hotloop.measure.steps import LoaderUse
from hotloop.units import rate, share, size

#: What takes longer for one sample is the work on it, not the call: a whole batch of them is no faster.
_LONGEST_CALL_S = 2e-3


@rule("input/per-sample-conversion", costed=True)
def per_sample_conversion(evidence: Evidence) -> Iterator[Finding]:
    """Add up the lines that convert one sample, and price them as part of making a batch."""
    feed = feed_of(evidence)
    if feed is None:
        return
    loader = feed.loader
    part = of_kind(per_sample_lines(loader), loader.lines_total_s, is_conversion)
    if part is None or part.share < evidence.limits.hot_line_ratio:
        return
    if part.share * loader.sample_s * feed.got > _LONGEST_CALL_S:
        return
    top = part.lines[0]
    if in_collate(loader, top, part.share):
        return
    others = f", {share(part.share)} with the other conversions" if len(part.lines) > 1 else ""
    yield of_making(
        evidence,
        feed,
        saved_s=feed.saved_by_make(part.share),
        message=(
            f"The line{quoted(top)} at {spot(part.place)} converts every sample by itself: "
            f"{share(top.seconds / loader.lines_total_s)} of making a batch{others}."
        ),
        numbers=[
            *(
                f"{spot(line.place)}{quoted(line)}: {share(line.seconds / loader.lines_total_s)}"
                f"{' in ' + line.library if line.library else ''}"
                for line in part.lines[:3]
            ),
            f"num_workers={feed.workers} on {rate(feed.cores)} cores",
        ],
        where=part.place,
        remedies=(*by_rows(top.source), "convert-once", "bake"),
        data={"share_of_make": part.share},
    )


#: Data sets that read a file and apply their transforms, and nothing else.
_DATASETS = "torchvision.datasets."


@rule("input/repeated-work", costed=True)
def repeated_work(evidence: Evidence) -> Iterator[Finding]:
    """Speak of a map-style dataset read more than once whose source, or transforms, show no randomness.

    The cost is that of the hottest function: what a cache takes away at least.
    """
    feed = feed_of(evidence)
    if feed is None or not _is_repeated(feed.loader):
        return
    loader = feed.loader
    transforms = tuple(map(str, loader.dataset.get("transforms") or ()))
    hot = hottest(per_sample_lines(loader), loader.lines_total_s)
    if str(loader.dataset.get("inner_module")).startswith(_DATASETS):
        if not only_same(transforms):
            return  # of a library's data set the transforms tell what is done again
        named = ", ".join(one.rpartition(".")[2] for one in transforms)
        ratio, where = 1.0 - min(1.0, collate_share(loader)), loader.where
        message = (
            f"{loader.dataset.get('inner_class')} makes the same samples in each of {loader.num_iterators} "
            f"epochs: none of its transforms ({named}) is random."
        )
    else:
        if hot is None or hot.share < evidence.limits.hot_line_ratio:
            return
        text = dataset_text(evidence, loader)
        if not text or is_random(text) or may_vary(transforms):
            return
        if in_collate(loader, hot.lines[0], hot.share):
            return  # other samples meet in every epoch
        if any(slow_storage.check(evidence)):
            return  # what is repeated is reading; whether memory holds it is the question that finding asks
        ratio, where = hot.share, hot.place
        message = (
            f"{hot.what} at {spot(hot.place)} does the same work for every sample in each of "
            f"{loader.num_iterators} epochs, and nothing random was seen in the dataset."
        )
    made = loader.batch_bytes * loader.batches_per_epoch
    yield of_making(
        evidence,
        feed,
        saved_s=feed.saved_by_make(ratio),
        message=message,
        numbers=[
            *([takes(hot)] if hot is not None else []),
            *([f"the made samples of an epoch take {size(made)}"] if made > 0 else []),
        ],
        where=where,
        data={"epochs": loader.num_iterators},
    )


def _is_repeated(loader: LoaderUse) -> bool:
    """Whether the same samples were surely asked for again."""
    varies = loader.settings.get("iterable") or loader.dataset_changes or loader.dataset_written
    again = loader.batches_per_epoch > 0 and loader.num_batches >= 1.5 * loader.batches_per_epoch
    return loader.num_iterators >= 2 and not varies and again and not one_batch_each(loader)
