"""``input/too-many-workers``: more workers than the cores or the work can use, and it shows."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop import units
from hotloop.diagnose import costs, says
from hotloop.diagnose.costs import Feed
from hotloop.diagnose.discovery import ARGUMENT
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.rules.input.too_few_workers import busy_ratio
from hotloop.findings import Finding

ID = "input/too-many-workers"
EFFORT = ARGUMENT
COSTED = True


def check(evidence: Evidence) -> Iterator[Finding]:
    """Speak where fewer workers would do: above the cores with computing work, or mostly idle."""
    feed = costs.feed(evidence)
    if feed is None or feed.workers < 2:
        return
    enough = feed.best_workers(feed.workers)
    if feed.workers < 2 * enough or feed.workers <= feed.cores:
        return
    crowding = _crowding_s(feed, enough, evidence)
    starting = _starting_s(feed, enough, evidence)
    cost = crowding + starting
    if cost < evidence.limits.worth_fixing_ratio * evidence.steps.step_s:
        return
    yield Finding(
        id=ID,
        message=(
            f"{feed.workers} workers share {units.rate(feed.cores)} cores; {enough} would make the batches "
            "as fast, "
            "and the rest cost time to start and to switch between."
        ),
        advice=f"Set num_workers={enough}.",
        evidence=(
            says.makes(feed),
            f"each worker makes batches {units.share(busy_ratio(feed))} of the time",
            f"starting them takes {units.duration(float(feed.loader.iter_s.sum()))} over the run",
            f"crowded cores cost {units.duration(crowding)} of each step, starting workers "
            f"{units.duration(starting)}",
        ),
        cost_s_per_step=cost,
        cost_ci95=costs.phase_interval(evidence.steps, cost, "data_wait"),
        where=feed.loader.where,
        remedies=costs.offers(feed.loader, "num-workers"),
        data={"num_workers": enough},
    )


def _crowding_s(feed: Feed, enough: int, evidence: Evidence) -> float:
    """What the step takes beyond full cores, where the makers compute and are more than the cores."""
    if feed.loader.make_on_cpu_ratio is None or feed.computing_ratio < evidence.limits.waiting_on_cpu_ratio:
        return 0.0
    excess = min(feed.wait_s, feed.step_s - feed.at(enough))
    # A tenth is what the model may be off by anyway.
    return excess if excess > evidence.limits.tie_ratio * feed.step_s else 0.0


def _starting_s(feed: Feed, enough: int, evidence: Evidence) -> float:
    """Starting the workers nobody needs, per step of this run."""
    starts = float(feed.loader.iter_s.sum() + feed.loader.shutdown_s.sum())
    return starts * (1.0 - enough / feed.workers) / evidence.steps.num_steps
