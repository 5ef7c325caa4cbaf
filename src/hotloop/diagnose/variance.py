"""Waits that come from uneven batches rather than from too low a mean rate, replayed by ``model``."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hotloop.diagnose import costs
from hotloop.diagnose.costs import BUSY_PHASES, Feed
from hotloop.diagnose.evidence import Evidence
from hotloop.measure.steps import Floats
from hotloop.model.simulate import waits


@dataclass(frozen=True, kw_only=True)
class Uneven:
    """A loader whose replayed waits agree with the observed ones, so that changes may be tried on the
    replay.
    """

    feed: Feed
    make_s: Floats  # per batch, as measured
    busy_s: Floats  # per step, as measured
    prefetch: int
    in_order: bool
    replayed_s: float  # mean wait of the replay as things are

    def wait_with(self, *, make_s: Floats | None = None, prefetch: int | None = None) -> float:
        """The mean wait per step with something changed, scaled to the observed one."""
        changed = waits(
            self.make_s if make_s is None else make_s,
            self.busy_s,
            workers=self.feed.workers,
            prefetch=self.prefetch if prefetch is None else prefetch,
            in_order=self.in_order,
        ).mean()
        return float(changed) * self.feed.wait_s / self.replayed_s if self.replayed_s > 0 else 0.0


def uneven(evidence: Evidence, *, keeps_up: bool = True) -> Uneven | None:
    """The loader's replay; None without workers, with few batches, or where it does not explain the waits.

    It must give between half and twice the observed wait. With ``keeps_up`` None is returned too where the
    mean rate alone explains the wait (``make / workers`` above the step's own work): variance is not the
    cause then.
    """
    feed = costs.feed_of(evidence)
    if feed is None or feed.workers == 0 or len(feed.loader.make_s) < 20 or feed.wait_s <= 0:
        return None
    # Drawing indices, and waiting for another loader.
    beside = feed.busy_s - sum(evidence.steps.per_step(phase) for phase in BUSY_PHASES)
    # Taking a batch over costs the same however even the making is: that part of the wait is the step's own.
    taking = min(feed.wait_s, feed.deliver_s)
    feed = replace(feed, wait_s=feed.wait_s - taking, busy_s=feed.busy_s + taking)
    if feed.wait_s < evidence.limits.mention_ratio * feed.step_s:
        return None
    # Full cores hold every batch up by turns: that is not variance either.
    if feed.cores_full_s() > 0.8 * feed.step_s:
        return None
    if keeps_up and feed.make_s / feed.workers > feed.busy_s + 0.5 * feed.wait_s:
        return None
    steps = evidence.steps
    busy = np.sum([steps.phase(phase) for phase in BUSY_PHASES], axis=0) + feed.deliver_s + beside
    make = feed.loader.make_s
    prefetch = int(feed.loader.settings.get("prefetch_factor") or 2)
    in_order = feed.loader.settings.get("in_order") is not False
    count = max(len(make), len(busy))
    make, busy = np.resize(make, count), np.resize(busy, count)
    wait = float(waits(make, busy, workers=feed.workers, prefetch=prefetch, in_order=in_order).mean())
    if not 0.5 * feed.wait_s <= wait <= 2 * feed.wait_s:
        return None
    return Uneven(feed=feed, make_s=make, busy_s=busy, prefetch=prefetch, in_order=in_order, replayed_s=wait)
