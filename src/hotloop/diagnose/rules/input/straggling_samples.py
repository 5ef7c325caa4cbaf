"""``input/straggling-samples``: a few samples take many times longer than the rest, and steps wait for
them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from hotloop import units
from hotloop.diagnose import costs, says
from hotloop.diagnose.collating import per_sample_lines
from hotloop.diagnose.costs import Feed, Floats
from hotloop.diagnose.discovery import EDIT
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.hotspots import Hotspot, hottest
from hotloop.diagnose.variance import uneven
from hotloop.findings import Finding

ID = "input/straggling-samples"
EFFORT = EDIT
COSTED = True

#: Where others want the cores, a sample waits for several slices of theirs.
_SLICES_OF_OTHERS = 10
#: With the slowest samples of so many batches all were timed: some are lost with a worker that is ended.
_TIMED = 0.9


def check(evidence: Evidence) -> Iterator[Finding]:
    """Cut the slowest samples down to the ordinary ones, and see how much of the wait goes."""
    feed = costs.feed(evidence)
    if feed is None or feed.wait_s <= 0:
        return
    slowest, make = feed.loader.slowest_sample_s, feed.loader.make_s
    if len(slowest) < 20 or len(make) < 20 or feed.loader.sample_s <= 0:
        return
    usual = _usual(feed)
    seen = slowest > evidence.limits.straggler_factor * usual
    if not seen.any():
        return
    heavy, excess = _heavy(evidence, feed, usual)
    # A few batches, not every one: otherwise the samples are simply uneven and more workers help.
    if not 0 < heavy.mean() <= evidence.limits.straggler_batches_ratio:
        return
    if excess.sum() < 0.2 * make.sum() and feed.workers == 0:
        return
    cost = _cost(evidence, feed, _without(make, excess)) * costs.exposed_ratio(evidence.steps, "data_wait")
    if cost < evidence.limits.worth_fixing_ratio * evidence.steps.step_s:
        return
    typical = float(np.median(slowest[seen]))
    crowded = feed.crowd.got < evidence.limits.got_ratio
    if typical < evidence.limits.straggler_s * (_SLICES_OF_OTHERS if crowded else 1):
        return
    spot = _line(evidence, feed, float(excess.sum() / make.sum()))
    where = f" at {says.at(spot.place)}" if spot is not None else ""
    yield Finding(
        id=ID,
        message=(
            f"One batch in {1 / float(heavy.mean()):.0f} holds a sample that takes "
            f"{units.duration(typical)}{where}, "
            f"{typical / usual:.0f} times the usual, and the steps behind it wait."
        ),
        advice=(
            "Find out what is special about the slow samples (size, length, a broken file) and cut, cache "
            "or store "
            "them ready; in_order=False and a larger prefetch_factor let other batches overtake."
        ),
        evidence=(
            says.waits(feed),
            f"the usual sample takes {units.duration(usual)}; {int(heavy.sum())} of {len(heavy)} batches "
            "hold one "
            f"above {evidence.limits.straggler_factor:.0f} times that",
            f"those samples take {units.share(float(excess.sum() / make.sum()))} of all making time",
            *((says.spot(spot),) if spot is not None else ()),
        ),
        cost_s_per_step=cost,
        cost_ci95=costs.phase_interval(evidence.steps, cost, "data_wait"),
        where=feed.loader.where if spot is None else spot.place,
        remedies=("in-order-false", "prefetch-factor"),
        data={"slow_batches_ratio": float(heavy.mean()), "slow_sample_s": typical, "usual_sample_s": usual},
    )


def _line(evidence: Evidence, feed: Feed, share: float) -> Hotspot | None:
    """The line that the slow samples spend their time in: where they take this share of making batches, so
    much of the line's time lies in them that the other samples have next to nothing of it.
    """
    limits = evidence.limits
    spot = hottest(per_sample_lines(feed.loader), feed.loader.lines_total_s)
    if spot is None or spot.share < limits.hot_line_ratio:
        return None
    theirs = share + spot.share - 1.0  # at least, of all making
    return spot if theirs >= limits.straggler_line_ratio * spot.share else None


def _heavy(evidence: Evidence, feed: Feed, usual: float) -> tuple[npt.NDArray[np.bool_], Floats]:
    """Which batches hold a slow sample, and the seconds it takes beyond the usual.

    Samples that cost next to nothing are timed now and then only: then a batch that took so much longer than
    the usual batch holds one, as those do that were timed.
    """
    slowest, make, limits = feed.loader.slowest_sample_s, feed.loader.make_s, evidence.limits
    factor = limits.straggler_factor
    if len(slowest) >= _TIMED * len(make):
        heavy = slowest > factor * usual
        return heavy, np.where(heavy, slowest - usual, 0.0)
    beyond = make - float(np.median(make))
    heavy = beyond > max(factor * usual, limits.straggler_s)
    return heavy, np.where(heavy, beyond, 0.0)


def _without(make: Floats, excess: Floats) -> Floats:
    """Making times with the slow samples cut down, the longest batch paired with the slowest sample.

    Batches of several workers and their slowest samples are not in the same order.
    """
    cut = make.copy()
    longest = np.argsort(make)[::-1][: int((excess > 0).sum())]
    slowest = np.sort(excess[excess > 0])[::-1]
    cut[longest] = np.maximum(make[longest] - slowest, np.minimum(np.median(make), make[longest]))
    return cut


def _usual(feed: Feed) -> float:
    """The usual slowest sample of a batch: the median, no less than the mean of all samples it stands for."""
    return float(np.median(feed.loader.slowest_sample_s))


def _cost(evidence: Evidence, feed: Feed, without: Floats) -> float:
    if feed.workers == 0:
        made = float(feed.loader.make_s.mean())
        return feed.saved_by_make(1.0 - float(without.mean()) / made)
    found = uneven(evidence, keeps_up=False)
    if found is None:
        return 0.0
    replayed = np.resize(without, len(found.make_s))
    return found.feed.wait_s - found.wait_with(make_s=replayed)
