"""``input/cold-start``: the first batch of a run or of each epoch takes far longer than any other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hotloop import units
from hotloop.diagnose import costs, says
from hotloop.diagnose.discovery import EDIT
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.first_pass import FirstPass
from hotloop.diagnose.hotspots import Hotspot, hottest, outside_samples
from hotloop.findings import Finding, Place

ID = "input/cold-start"
EFFORT = EDIT

#: So many first batches show what each epoch pays.
_MANY = 3


def check(evidence: Evidence) -> Iterator[Finding]:
    """Price first batches beyond the making of one; a single one only where it is long and the run not much
    longer.
    """
    feed = costs.feed(evidence)
    if feed is None:
        return
    loader = feed.loader
    limits = evidence.limits
    if evidence.first_pass is not None and not costs.waited_for(evidence.steps):
        yield _filling(evidence.first_pass, loader.where)
    if len(loader.first_batch_s) == 0:
        return
    firsts = loader.first_batch_s.copy()
    started_once = len(firsts) == 1 or loader.settings.get("persistent_workers")
    if feed.workers and len(loader.iter_s) and started_once:
        firsts[0] += loader.iter_s[0]  # starting the workers once; starting them anew has a rule of its own
    excess = np.maximum(0.0, firsts - (feed.make_s + feed.deliver_s))
    # One that comes again with every epoch counts by its share, however long it takes.
    least = limits.cold_start_s if len(firsts) < _MANY else 0.0
    slow = excess > np.maximum(limits.cold_start_factor * feed.step_s, least)
    if not slow.any():
        return
    total = float(excess[slow].sum())
    once = int(slow.sum()) == 1
    share = total / evidence.steps.span_s
    # One slow start fades in a longer run; the next epoch's does not.
    if share < (limits.medium_ratio if once else limits.worth_fixing_ratio):
        return
    cost = total / evidence.steps.num_steps
    typical = float(np.median(firsts[slow]))
    spot = _dominant(evidence, total)
    staying = costs.offers(loader, "persistent-workers") if feed.workers and not once else ()
    spawned = str(loader.settings.get("multiprocessing_context") or "")
    yield Finding(
        id=ID,
        message=(
            f"The first batch {'of the run' if once else 'of each epoch'} takes {units.duration(typical)}, "
            f"{typical / max(1e-9, feed.make_s):.0f} times the making of a batch"
            + (f", most of it {spot.what} at {says.at(spot.place)}." if spot is not None else ".")
        ),
        advice=_advice(feed.workers, spawned, bool(staying)) if spot is None else _ORDER,
        evidence=(
            f"{int(slow.sum())} slow first {'batch' if once else 'batches'}, {units.duration(total)} in all "
            f"({units.share(share)} of the training span)",
            f"making a batch takes {units.duration(feed.make_s)}",
            f"num_workers={feed.workers}" + (f", start method {spawned}" if spawned else ""),
        ),
        cost_s_per_step=cost,
        where=loader.where if spot is None else spot.place,
        remedies=staying,
        data={"first_batch_s": typical, "once": once},
    )


def _filling(filling: FirstPass, where: Place | None) -> Finding:
    first, later = units.duration(filling.wait_s), units.duration(filling.later_s)
    return Finding(
        id=ID,
        severity="info",
        message=(
            f"The first pass over the data waits {first} per step, later ones {later}: what it reads or "
            "makes is kept. Costs of the input are those of later passes."
        ),
        advice=(
            "Leave it in a run of many epochs; where every start of one hurts, store what the first pass "
            "makes on disk."
        ),
        evidence=(
            f"{units.duration(filling.excess_s)} in {filling.num_steps} steps that later passes do not take",
        ),
        where=where,
        data={"first_pass_wait_s": filling.wait_s, "later_wait_s": filling.later_s},
    )


_ORDER = (
    "This runs before the first batch and not for its samples (a sampler that orders them): prepare once "
    "what does not change, on arrays, and leave only the shuffling to each epoch."
)


def _dominant(evidence: Evidence, total_s: float) -> Hotspot | None:
    """The user's code in the training process that first batches waited for, making samples left out."""
    spot = hottest(outside_samples(evidence.steps), total_s)
    return spot if spot is not None and spot.share >= evidence.limits.dominant_line_ratio else None


def _advice(workers: int, start_method: str, staying: bool) -> str:
    if staying:
        return (
            "Keep the workers over epochs (persistent_workers=True) and open files or fill caches once per "
            "worker, "
            "not once per epoch."
        )
    if workers and ("spawn" in start_method or "forkserver" in start_method):
        return (
            "Use the start method fork where the dataset allows it, or keep imports and large objects out "
            "of what "
            "every new worker must load."
        )
    return "Do the one-time work (opening, indexing, decoding) before training or store its result on disk."
