"""``input/worker-transport``: batches cost more to ship from a worker than they cost to make."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop import units
from hotloop.diagnose import costs, says
from hotloop.diagnose.collating import DEFAULT_COLLATE, collate_name
from hotloop.diagnose.costs import Feed
from hotloop.diagnose.discovery import ARGUMENT
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.rules.input.too_few_workers import busy_ratio
from hotloop.findings import Finding

ID = "input/worker-transport"
EFFORT = ARGUMENT
COSTED = True

#: Smaller batches cost their call, not their bytes.
_LARGE_BYTES = 1e6
#: A copy into recycled memory (25 GB/s alone on the machine it was measured on, less beside others).
_COPY_BYTES_PER_S = 10e9
#: From this share of making on, shipping is what making is about.
_MOSTLY = 0.5


def check(evidence: Evidence) -> Iterator[Finding]:
    """Speak where the step waits longer for a batch than the training process would need to make it."""
    feed = costs.feed(evidence)
    if feed is None or feed.workers == 0 or feed.wait_s <= 0:
        return
    # Waiting for a core after a batch has come is the crowd's, whatever loader it comes from.
    crowded = feed.deliver_s / feed.main_crowd.got - feed.deliver_s
    alone = feed.step_s - feed.at(0) - crowded
    shipping = max(_shipping_s(feed, evidence), _writing_saved_s(feed))
    cost = max(alone, shipping) * costs.exposed_ratio(evidence.steps, "data_wait")
    if cost < evidence.limits.worth_fixing_ratio * evidence.steps.step_s:
        return
    without = alone >= shipping
    yield Finding(
        id=ID,
        message=_message(feed, without),
        advice=_advice(without),
        evidence=(
            says.waits(feed),
            says.makes(feed),
            f"taking over a batch that is ready takes {units.duration(feed.deliver_s)}"
            + (f" for {units.size(feed.loader.batch_bytes)}" if feed.loader.batch_bytes else ""),
            f"num_workers={feed.workers}, each making batches {units.share(busy_ratio(feed))} of the time",
        ),
        cost_s_per_step=cost,
        cost_ci95=costs.phase_interval(evidence.steps, cost, "data_wait"),
        where=feed.loader.where,
        remedies=costs.offers(feed.loader, *(("no-workers",) if alone > 0 else ()), "ring-loader"),
        data={"without_workers_step_s": feed.at(0), "deliver_s": feed.deliver_s},
    )


def _shipping_s(feed: Feed, evidence: Evidence) -> float:
    """Seconds of the wait that are taking over batches that lay ready; 0 where it was not measured."""
    if feed.loader.deliver_s is None or feed.deliver_s < evidence.limits.medium_ratio * feed.step_s:
        return 0.0
    if feed.loader.batch_bytes < _LARGE_BYTES:
        return 0.0  # a small batch long under way waits for the worker's interpreter, busy with the next
    return min(feed.wait_s, feed.deliver_s)


def writing_s(feed: Feed) -> float:
    """Seconds of making a batch that go into a fresh piece of shared memory: torch's own collate in a worker.

    Less what a plain copy into memory that is used again takes.
    """
    if feed.workers == 0 or collate_name(feed.loader.settings) not in DEFAULT_COLLATE:
        return 0.0
    if feed.loader.batch_bytes < _LARGE_BYTES:
        return 0.0
    copying = feed.loader.batch_bytes / (_COPY_BYTES_PER_S * feed.crowd.got)
    return max(0.0, feed.loader.collate_s - copying)


def _writing_saved_s(feed: Feed) -> float:
    """What the step would save if batches were written to memory that is used again."""
    made = float(feed.loader.make_s.mean()) if len(feed.loader.make_s) else 0.0
    share = writing_s(feed) / made if made > 0 else 0.0
    # Where samples cost more than shipping them, shipping is not the cause.
    return feed.saved_by_make(share) if share > _MOSTLY else 0.0


def _message(feed: Feed, without: bool) -> str:
    if without:
        return (
            f"Workers cost more than they bring: a batch is made in {units.duration(feed.make_s)}, and the "
            "step "
            f"waits {units.duration(feed.wait_s)} for it."
        )
    writing = writing_s(feed)
    if writing > feed.deliver_s:
        return (
            f"{units.duration(writing)} of the {units.duration(feed.make_s)} it takes to make a batch go "
            "into "
            f"writing {units.size(feed.loader.batch_bytes)} to fresh shared memory."
        )
    return f"Taking a finished batch over from a worker takes {units.duration(feed.deliver_s)} of every step."


def _advice(without: bool) -> str:
    if without:
        return (
            "Set num_workers=0 and give the dataset a __getitems__ that gathers a whole batch at once; or "
            "use a "
            "loader that reuses its shared memory."
        )
    return (
        "Ship less: uint8 instead of float32, no unread fields, smaller dtypes; or use a loader that reuses "
        "its "
        "shared memory."
    )
