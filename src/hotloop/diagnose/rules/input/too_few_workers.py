"""``input/too-few-workers``: the workers are busy all the time and the machine has room for more."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop import units
from hotloop.diagnose import costs, says
from hotloop.diagnose.costs import Feed
from hotloop.diagnose.discovery import ARGUMENT
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.rules.input.single_process import worker_limit
from hotloop.diagnose.rules.input.slow_storage import waiting_reads
from hotloop.findings import Finding

ID = "input/too-few-workers"
EFFORT = ARGUMENT
COSTED = True


def check(evidence: Evidence) -> Iterator[Finding]:
    """Speak where busy workers are the limit: not the cores, not transport, not the storage."""
    feed = costs.feed(evidence)
    if feed is None or feed.workers == 0 or not feed.fits():
        return
    busy = busy_ratio(feed)
    if busy < evidence.limits.busy_workers_ratio or waiting_reads(feed, evidence) is not None:
        return
    workers = feed.best_workers(worker_limit(feed, evidence), first=feed.workers)
    if workers == feed.workers:
        return
    cost = feed.saved_by_workers(workers) * costs.exposed_ratio(evidence.steps, "data_wait")
    yield Finding(
        id=ID,
        message=(
            f"{feed.workers} DataLoader {'worker is' if feed.workers == 1 else 'workers are'} busy "
            f"{units.share(busy)} of the time and the step still waits {units.duration(feed.wait_s)}."
        ),
        advice=(
            f"Set num_workers={workers}; a step without its pauses is predicted to take "
            f"{units.duration(max(feed.busy_s, feed.step_s - feed.saved_by_workers(workers)))} instead of "
            f"{units.duration(feed.step_s)}."
        ),
        evidence=(
            says.waits(feed),
            says.makes(feed),
            f"num_workers={feed.workers}, each busy {units.share(busy)}; {units.rate(feed.cores)} cores to "
            "use",
        ),
        cost_s_per_step=cost,
        cost_ci95=costs.phase_interval(evidence.steps, cost, "data_wait"),
        where=feed.loader.where,
        remedies=costs.offers(feed.loader, "num-workers"),
        data={"num_workers": workers, "busy_ratio": busy},
    )


def busy_ratio(feed: Feed) -> float:
    """Share of the stepping time (evaluation and the like left out) in which a worker makes batches."""
    if feed.workers == 0 or feed.step_s <= 0:
        return 0.0
    return min(1.0, feed.make_s / (feed.workers * feed.step_s))
