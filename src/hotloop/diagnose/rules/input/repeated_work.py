"""``input/repeated-work``: the same samples are made in the same way every epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hotloop import units
from hotloop.diagnose import costs, says
from hotloop.diagnose.collating import collate_share, in_collate, per_sample_lines
from hotloop.diagnose.costs import Feed
from hotloop.diagnose.discovery import OPPORTUNITY
from hotloop.diagnose.elementwise import by_elements
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.hotspots import hottest
from hotloop.diagnose.reading import is_random, may_vary, only_same, scales
from hotloop.diagnose.rules.input import slow_storage
from hotloop.diagnose.source import dataset_text
from hotloop.findings import Finding

ID = "input/repeated-work"
EFFORT = OPPORTUNITY
COSTED = True

#: Data sets that read a file and apply their transforms, and nothing else.
_DATASETS = "torchvision.datasets."


def check(evidence: Evidence) -> Iterator[Finding]:
    """Speak of a map-style dataset read more than once whose source, or transforms, show no randomness.

    The cost is that of the hottest function: what a cache takes away at least.
    """
    feed = costs.feed(evidence)
    if feed is None:
        return
    loader = feed.loader
    epochs = loader.num_iterators
    if (
        epochs < 2
        or loader.settings.get("iterable")
        or loader.dataset_changes
        or loader.dataset_written
        or not _finished_an_epoch(feed.loader.num_batches, loader.batches_per_epoch)
    ):
        return
    transforms = tuple(map(str, loader.dataset.get("transforms") or ()))
    if str(loader.dataset.get("inner_module")).startswith(_DATASETS):
        if only_same(transforms):
            yield _of_a_library(evidence, feed, transforms)
        return
    spot = hottest(per_sample_lines(loader), loader.lines_total_s)
    if spot is None or spot.share < evidence.limits.hot_line_ratio:
        return
    if in_collate(loader, spot.lines[0], spot.share):
        return  # other samples meet in every epoch
    text = dataset_text(evidence, loader)
    if not text or is_random(text) or may_vary(transforms):
        return
    if any(slow_storage.check(evidence)):
        return  # what is repeated is reading; whether memory holds it is the question that finding asks
    cost = feed.saved_by_make(spot.share) * costs.exposed_ratio(evidence.steps, "data_wait")
    yield Finding(
        id=ID,
        message=(
            f"{spot.what} at {says.at(spot.place)} does the same work for every sample in each of {epochs} "
            "epochs, and "
            "nothing random was seen in the dataset."
        ),
        advice=(
            "Do this work once: keep the made samples in memory where they fit, or write them to a "
            "memory-mapped "
            "file before training; leave random augmentation after it."
        ),
        evidence=(
            says.waits(feed),
            says.makes(feed),
            says.spot(spot),
            *_size(feed.loader.batch_bytes, loader.batches_per_epoch),
        ),
        cost_s_per_step=cost,
        cost_ci95=costs.phase_interval(evidence.steps, cost, "data_wait"),
        where=spot.place,
        remedies=("pretransform", "cache-samples", "bake")
        if scales(spot.source)
        else (*by_elements(evidence, spot.place), "cache-samples", "bake"),
        data={"epochs": epochs, "share_of_make": spot.share},
    )


def _of_a_library(evidence: Evidence, feed: Feed, transforms: Sequence[str]) -> Finding:
    """A data set of a library, whose code is not the user's: its transforms tell what is done again."""
    loader = feed.loader
    share = 1.0 - min(1.0, collate_share(loader))
    cost = feed.saved_by_make(share) * costs.exposed_ratio(evidence.steps, "data_wait")
    named = ", ".join(one.rpartition(".")[2] for one in transforms)
    return Finding(
        id=ID,
        message=(
            f"{loader.dataset.get('inner_class')} makes the same samples in each of {loader.num_iterators} "
            f"epochs: none of its transforms ({named}) is random."
        ),
        advice=(
            "Transform all samples once, before training, and index the tensors, or keep the made samples in "
            "memory where they fit."
        ),
        evidence=(
            says.waits(feed),
            says.makes(feed),
            *_size(loader.batch_bytes, loader.batches_per_epoch),
        ),
        cost_s_per_step=cost,
        cost_ci95=costs.phase_interval(evidence.steps, cost, "data_wait"),
        where=loader.where,
        remedies=("cache-samples", "bake"),
        data={"epochs": loader.num_iterators, "share_of_make": share},
    )


def _finished_an_epoch(batches: int, per_epoch: float) -> bool:
    return per_epoch > 0 and batches >= 1.5 * per_epoch


def _size(batch_bytes: float, batches: float) -> Iterator[str]:
    if batch_bytes > 0 and batches > 0:
        yield f"the made samples of an epoch take {units.size(batch_bytes * batches)}"
