"""``input/straggling-samples``: a few samples take many times longer than the rest, and steps wait for
them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hotloop.diagnose.costs import Feed, feed_of
from hotloop.diagnose.evidence import Evidence, at, rule, spot
from hotloop.diagnose.groups import hottest, seconds_of
from hotloop.diagnose.making import of_input, waits
from hotloop.diagnose.variance import uneven
from hotloop.findings import Finding
from hotloop.measure.steps import Floats
from hotloop.units import duration, share

#: Where others want the cores, a sample waits for several slices of theirs.
_SLICES_OF_OTHERS = 10
#: Samples that cost next to nothing are timed now and then only; some are lost with a worker that is ended.
_TIMED = 0.9


@rule("input/straggling-samples", costed=True)
def check(evidence: Evidence) -> Iterator[Finding]:
    """Cut the slowest samples down to the ordinary ones, and see how much of the wait goes."""
    feed, limits = feed_of(evidence), evidence.limits
    if feed is None or feed.wait_s <= 0:
        return
    slowest, make = feed.loader.slowest_sample_s, feed.loader.make_s
    if len(slowest) < max(20, _TIMED * len(make)) or len(make) < 20 or feed.loader.sample_s <= 0:
        return
    usual = float(np.median(slowest))  # the usual slowest sample of a batch
    seen = slowest > limits.straggler_factor * usual
    if not seen.any():
        return
    excess = np.where(seen, slowest - usual, 0.0)
    slow, ratio = float(seen.mean()), float(excess.sum() / make.sum())
    # A few batches, not every one: otherwise the samples are simply uneven and more workers help.
    if not 0 < slow <= limits.straggler_batches_ratio or (ratio < 0.2 and feed.workers == 0):
        return
    saved = _saved(evidence, feed, _without(make, excess))
    if saved * evidence.steps.exposed("data_wait") < limits.worth_fixing_ratio * evidence.steps.step_s:
        return
    typical = float(np.median(slowest[seen]))
    if typical < limits.straggler_s * (_SLICES_OF_OTHERS if feed.got < limits.got_ratio else 1):
        return
    lines = feed.loader.slowest_lines  # the slow ones are nearly all of their time
    hot = hottest(lines, seconds_of(lines))
    place = hot.place if hot is not None and hot.share >= limits.hot_line_ratio else None
    yield of_input(
        evidence,
        saved_s=saved,
        message=(
            f"One batch in {1 / slow:.0f} holds a sample that takes {duration(typical)}{at(place)}, "
            f"{typical / usual:.0f} times the usual, and the steps behind it wait."
        ),
        numbers=[
            waits(feed),
            f"the usual sample takes {duration(usual)}; {int(seen.sum())} of {len(seen)} batches hold one "
            f"above {limits.straggler_factor:.0f} times that",
            f"those samples take {share(ratio)} of all making time",
            *(
                [f"{share(hot.share)} of their time is at {spot(hot.place)}: {hot.source.strip()}"]
                if hot
                else []
            ),
        ],
        where=place or feed.loader.where,
        data={"slow_batches_ratio": slow, "slow_sample_s": typical, "usual_sample_s": usual},
    )


def _without(make: Floats, excess: Floats) -> Floats:
    """Making times with the slow samples cut down, the longest batch paired with the slowest sample.

    Batches of several workers and their slowest samples are not in the same order.
    """
    cut = make.copy()
    longest = np.argsort(make)[::-1][: int((excess > 0).sum())]
    slowest = np.sort(excess[excess > 0])[::-1]
    cut[longest] = np.maximum(make[longest] - slowest, np.minimum(np.median(make), make[longest]))
    return cut


def _saved(evidence: Evidence, feed: Feed, without: Floats) -> float:
    if feed.workers == 0:
        return feed.saved_by_make(1.0 - float(without.mean()) / float(feed.loader.make_s.mean()))
    found = uneven(evidence, keeps_up=False)
    if found is None:
        return 0.0
    return found.feed.wait_s - found.wait_with(make_s=np.resize(without, len(found.make_s)))
