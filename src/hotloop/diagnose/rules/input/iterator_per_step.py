"""``input/iterator-per-step``: every batch is the first one of an iterator that is then thrown away."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop import units
from hotloop.diagnose import costs
from hotloop.diagnose.costs import Feed
from hotloop.diagnose.discovery import EDIT
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.groups import select
from hotloop.diagnose.python_work import dropping_lines
from hotloop.findings import Finding, Place

ID = "input/iterator-per-step"
EFFORT = EDIT
COSTED = True


def check(evidence: Evidence) -> Iterator[Finding]:
    """Price what a new iterator takes beyond making its one batch; one with workers has a rule of its own."""
    feed = costs.feed(evidence)
    if feed is None or feed.workers or feed.loader.anew or not costs.one_batch_each(feed.loader):
        return  # an iterator that is kept would miss what came since (a replay buffer)
    steps, loader = evidence.steps, feed.loader
    asked = _asked(evidence)
    dropped = sum(line.seconds for line in dropping_lines(steps) if line.place == asked)
    started = feed.wait_s + feed.first_excess_s - feed.make_s + float(loader.iter_s.sum()) / steps.num_steps
    cost = max(0.0, started) + dropped / steps.num_steps
    if cost < evidence.limits.worth_fixing_ratio * steps.step_s:
        return
    yield Finding(
        id=ID,
        message=(
            f"Every step makes a new iterator of {loader.length} batches and takes one: "
            f"{units.duration(cost)} for a batch that is made in {units.duration(feed.make_s)}."
        ),
        advice=(
            "Make the iterator once, batches = iter(loader), ask next(batches) in each step, and make a new "
            "one when it raises StopIteration. The order is then that of whole epochs: every sample once in "
            "each."
        ),
        evidence=_evidence(feed, dropped / steps.num_steps),
        cost_s_per_step=cost,
        cost_ci95=costs.phase_interval(steps, cost, "data_wait"),
        where=asked or loader.where,
        data={"iterators": loader.num_iterators, "length": loader.length},
    )


def _asked(evidence: Evidence) -> Place | None:
    """The line of the loop that most of the wait was sampled in."""
    waits = select(evidence.steps, lambda line: line.phase in ("data_wait", "epoch_gap"))
    most = max(waits, key=lambda line: line.seconds, default=None)
    return None if most is None else most.statement or most.place


def _evidence(feed: Feed, dropped_s: float) -> tuple[str, ...]:
    loader = feed.loader
    return (
        f"{loader.num_iterators} iterators for {loader.num_batches} batches; one would give {loader.length}",
        f"the first batch of an iterator takes {units.duration(feed.wait_s + feed.first_excess_s)} of each "
        f"step, making it {units.duration(feed.make_s)}",
        *((f"dropping the iterator takes {units.duration(dropped_s)}",) if dropped_s else ()),
    )
