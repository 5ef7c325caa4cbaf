"""Too few workers, too many, too few batches asked for ahead, or batches that cost more to ship than make."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hotloop.diagnose.collating import DEFAULT_COLLATE, collate_name, giving_back_s
from hotloop.diagnose.costs import Feed, feed_of, offers
from hotloop.diagnose.evidence import Evidence, rule
from hotloop.diagnose.groups import of_kind
from hotloop.diagnose.line_kinds import is_lock
from hotloop.diagnose.making import at_best, of_input, of_making, waits
from hotloop.diagnose.rules.input.slow_storage import waiting_reads
from hotloop.diagnose.variance import uneven
from hotloop.findings import Finding
from hotloop.units import duration, rate, share, size

#: Depths tried in this order; the first that leaves no more than a tenth of the wait beyond the best counts.
_DEPTHS = (4, 8, 16)
#: Smaller batches cost their call, not their bytes.
_LARGE_BYTES = 1e6
#: A copy into recycled memory (25 GB/s alone on the machine it was measured on, less beside others).
_COPY_BYTES_PER_S = 10e9
#: From this share of making on, shipping is what making is about.
_MOSTLY = 0.5


@rule("input/too-few-workers", costed=True)
def too_few_workers(evidence: Evidence) -> Iterator[Finding]:
    """Speak where busy workers are the limit: not the cores, transport, the storage or a lock they share."""
    feed = feed_of(evidence)
    if feed is None or feed.workers == 0 or not feed.fits():
        return
    busy = busy_ratio(feed)
    if busy < evidence.limits.busy_workers_ratio or waiting_reads(feed, evidence) is not None:
        return
    locked = of_kind(feed.loader.lines, feed.loader.lines_total_s, is_lock)
    if locked is not None and locked.share >= evidence.limits.hot_line_ratio:
        return
    workers = feed.best_workers(worker_limit(feed, evidence), first=feed.workers)
    if workers == feed.workers:
        return
    saved = feed.saved_by_workers(workers)
    yield of_making(
        evidence,
        feed,
        saved_s=saved,
        message=(
            f"{feed.workers} DataLoader {'worker is' if feed.workers == 1 else 'workers are'} busy "
            f"{share(busy)} of the time and the step still waits {duration(feed.wait_s)}."
        ),
        advice=f"Set num_workers={workers}; {at_best(feed, workers)}.",
        numbers=[f"num_workers={feed.workers}, each busy {share(busy)}; {rate(feed.cores)} cores to use"],
        where=feed.loader.where,
        remedies=offers(feed.loader, "num-workers"),
        data={"num_workers": workers, "busy_ratio": busy},
    )


@rule("input/too-many-workers", costed=True)
def too_many_workers(evidence: Evidence) -> Iterator[Finding]:
    """Speak where fewer workers would do: above the cores with computing work, or mostly idle."""
    feed = feed_of(evidence)
    if feed is None or feed.workers < 2:
        return
    enough = feed.best_workers(feed.workers)
    if feed.workers < 2 * enough or feed.workers <= feed.cores:
        return
    crowding = _crowding_s(feed, enough, evidence)
    started = float(feed.loader.iter_s.sum() + feed.loader.shutdown_s.sum()) / evidence.steps.num_steps
    starting = started * (1.0 - enough / feed.workers)
    # Each imports and opens what it needs before its first batch, side by side on the cores that there are.
    starting += feed.first_excess_s * (1.0 - max(enough, feed.cores) / feed.workers)
    cost = crowding + starting
    if cost < evidence.limits.worth_fixing_ratio * evidence.steps.step_s:
        return
    yield of_making(
        evidence,
        feed,
        saved_s=cost,
        message=(
            f"{feed.workers} workers share {rate(feed.cores)} cores; {enough} would make the batches as "
            "fast, and the rest cost time to start and to switch between."
        ),
        advice=f"Set num_workers={enough}.",
        numbers=[
            f"each worker makes batches {share(busy_ratio(feed))} of the time",
            f"starting them takes {duration(float(feed.loader.iter_s.sum()))} over the run",
            f"crowded cores cost {duration(crowding)} of each step, starting workers {duration(starting)}",
        ],
        where=feed.loader.where,
        remedies=offers(feed.loader, "num-workers"),
        data={"num_workers": enough},
    )


@rule("input/shallow-prefetch", costed=True)
def shallow_prefetch(evidence: Evidence) -> Iterator[Finding]:
    """Replay the queue with more batches asked for ahead; speak where the wait shrinks."""
    found = uneven(evidence)
    if found is None or found.prefetch > evidence.limits.shallow_prefetch:
        return
    left = {depth: found.wait_with(prefetch=depth) for depth in _DEPTHS if depth > found.prefetch}
    feed = found.feed
    depth = min(depth for depth, wait in left.items() if wait <= min(left.values()) + 0.1 * feed.wait_s)
    saved = feed.wait_s - left[depth]
    exposed = evidence.steps.exposed("data_wait")
    if saved * exposed < evidence.limits.worth_fixing_ratio * evidence.steps.step_s:
        return
    spread = float(np.percentile(found.make_s, 95) / max(1e-9, float(np.median(found.make_s))))
    yield of_input(
        evidence,
        saved_s=saved,
        message=(
            f"The workers are fast enough on average, yet the step waits {duration(feed.wait_s)}: with "
            f"prefetch_factor={found.prefetch} too few batches lie ready when one takes longer."
        ),
        advice=f"Set prefetch_factor={depth}; it costs memory for {depth * feed.workers} batches.",
        numbers=[
            waits(feed),
            f"{feed.workers} workers make a batch every {duration(feed.make_s / feed.workers)}, "
            f"the step takes {duration(feed.busy_s)} itself",
            f"a slow batch (95th percentile) takes {spread:.1f} times the median",
            f"the queue replayed with prefetch_factor={depth} waits {duration(left[depth])} per step",
        ],
        where=feed.loader.where,
        data={"prefetch_factor": depth},
    )


@rule("input/worker-transport", costed=True)
def worker_transport(evidence: Evidence) -> Iterator[Finding]:
    """Speak where the step waits longer for a batch than the training process would need to make it."""
    feed = feed_of(evidence)
    if feed is None or feed.workers == 0 or feed.wait_s <= 0:
        return
    # Waiting for a core after a batch has come is the crowd's, whatever loader it comes from.
    crowded = feed.deliver_s / feed.main_got - feed.deliver_s
    returned = giving_back_s(evidence.steps) / evidence.steps.num_steps
    alone = feed.step_s - feed.at(0) - crowded + returned
    writing = _writing_s(feed)
    shipping = max(_shipping_s(feed, evidence), _writing_saved_s(feed, writing)) + returned
    saved = max(alone, shipping)
    exposed = evidence.steps.exposed("data_wait")
    if saved * exposed < evidence.limits.worth_fixing_ratio * evidence.steps.step_s:
        return
    batch = f" for {size(feed.loader.batch_bytes)}" if feed.loader.batch_bytes else ""
    message, advice = _transported(feed, writing, alone >= shipping)
    yield of_making(
        evidence,
        feed,
        saved_s=saved,
        message=message,
        advice=advice,
        numbers=[
            f"taking over a batch that is ready takes {duration(feed.deliver_s)}{batch}"
            + (f", giving the last one back {duration(returned)}" if returned else ""),
            f"num_workers={feed.workers}, each making batches {share(busy_ratio(feed))} of the time",
        ],
        where=feed.loader.where,
        remedies=offers(feed.loader, *(("no-workers",) if alone > 0 else ()), "ring-loader"),
        data={"without_workers_step_s": feed.at(0), "deliver_s": feed.deliver_s},
    )


def busy_ratio(feed: Feed) -> float:
    """Share of the stepping time (evaluation and the like left out) in which a worker makes batches."""
    if feed.workers == 0 or feed.step_s <= 0:
        return 0.0
    return min(1.0, feed.make_s / (feed.workers * feed.step_s))


def worker_limit(feed: Feed, evidence: Evidence) -> int:
    """The most workers worth thinking of: the cores, or for waiting work more, up to the limit."""
    limits = evidence.limits
    cores = max(1, int(feed.cores))
    if feed.computing_ratio > limits.waiting_on_cpu_ratio:
        return cores
    return max(cores, min(limits.max_workers, limits.max_workers_per_core * cores))


def _crowding_s(feed: Feed, enough: int, evidence: Evidence) -> float:
    """What the step takes beyond full cores, where the makers compute and are more than the cores."""
    if feed.loader.make_on_cpu_ratio is None or feed.computing_ratio < evidence.limits.waiting_on_cpu_ratio:
        return 0.0
    excess = min(feed.wait_s, feed.step_s - feed.at(enough))
    # A tenth is what the model may be off by anyway.
    return excess if excess > evidence.limits.tie_ratio * feed.step_s else 0.0


def _shipping_s(feed: Feed, evidence: Evidence) -> float:
    """Seconds of the wait that are taking over batches that lay ready; 0 where it was not measured."""
    if feed.loader.deliver_s is None or feed.deliver_s < evidence.limits.medium_ratio * feed.step_s:
        return 0.0
    if feed.loader.batch_bytes < _LARGE_BYTES:
        return 0.0  # a small batch long under way waits for the worker's interpreter, busy with the next
    return min(feed.wait_s, feed.deliver_s)


def _writing_s(feed: Feed) -> float:
    """Seconds of making a batch that go into a fresh piece of shared memory: torch's own collate in a worker.

    Less what a plain copy into memory that is used again takes.
    """
    if collate_name(feed.loader.settings) not in DEFAULT_COLLATE or feed.loader.batch_bytes < _LARGE_BYTES:
        return 0.0
    copying = feed.loader.batch_bytes / (_COPY_BYTES_PER_S * feed.got)
    return max(0.0, feed.loader.collate_s - copying)


def _writing_saved_s(feed: Feed, writing: float) -> float:
    """What the step would save if batches were written to memory that is used again."""
    made = float(feed.loader.make_s.mean()) if len(feed.loader.make_s) else 0.0
    ratio = writing / made if made > 0 else 0.0
    # Where samples cost more than shipping them, shipping is not the cause.
    return feed.saved_by_make(ratio) if ratio > _MOSTLY else 0.0


def _transported(feed: Feed, writing: float, without: bool) -> tuple[str, str]:
    """The message and the advice."""
    if without:
        return (
            f"Workers cost more than they bring: a batch is made in {duration(feed.make_s)}, and the step "
            f"waits {duration(feed.wait_s)} for it.",
            "Set num_workers=0 and give the dataset a __getitems__ that gathers a whole batch at once; or "
            "use a loader that reuses its shared memory.",
        )
    less = (
        "Ship less: uint8 instead of float32, no unread fields, smaller dtypes; or use a loader that reuses "
        "its shared memory."
    )
    if writing > feed.deliver_s:
        written = f"writing {size(feed.loader.batch_bytes)} to fresh shared memory"
        took = f"{duration(writing)} of the {duration(feed.make_s)} it takes to make a batch"
        return f"{took} go into {written}.", less
    return f"Taking a finished batch over from a worker takes {duration(feed.deliver_s)} of every step.", less
