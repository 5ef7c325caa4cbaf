"""How many workers a loader of an evaluation wants: none, new ones each time, or ones that stay."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hotloop.diagnose.costs import AS_FAST, Feed, deliver_s
from hotloop.diagnose.evidence import Evidence
from hotloop.measure.steps import LoaderUse

#: Seconds to start and end a forked worker, where the run shows none (FIELDNOTES 3.5).
_STARTING_S = 0.03


@dataclass(frozen=True, kw_only=True, order=True)
class Wanted:
    """The fewest workers about as fast as the fastest; ``seconds`` of one evaluation with them."""

    workers: int
    stay: bool
    seconds: float

    @property
    def words(self) -> str:
        """The arguments."""
        return f"num_workers={self.workers}" + " and persistent_workers=True" * self.stay


def waited_s(loader: LoaderUse) -> float:
    """Seconds that were waited for a loader, its workers' starts and ends included."""
    return float(loader.wait_s.sum() + loader.iter_s.sum() + loader.shutdown_s.sum())


def wanted(evidence: Evidence, loader: LoaderUse, evaluation_s: float) -> Wanted | None:
    """What would suit a loader that evaluations of so many seconds go through; None where nobody knows, or
    where it has that already.
    """
    has, stays = int(loader.settings.get("num_workers") or 0), bool(loader.settings.get("persistent_workers"))
    made = loader.make_s if has or len(loader.make_s) else loader.wait_s
    times, number = loader.num_iterators, loader.batches_per_epoch
    if loader.own or loader.settings.get("iterable") or not (len(made) and times and number):
        return None
    own = max(0.0, evaluation_s - waited_s(loader) / times) / number
    make, got = float(np.median(made)), evidence.workers_got if has else evidence.got  # a new worker is slow
    computing = 1.0 if loader.make_on_cpu_ratio is None else loader.make_on_cpu_ratio
    feed = Feed(
        loader=loader, busy_s=own, wait_s=0.0, first_excess_s=0.0, make_s=make, transfer_s=0.0,
        make_cpu_s=make * got * computing, step_cpu_s=own, deliver_s=deliver_s(loader),
        cores=evidence.cores, workers=has,
    )  # fmt: skip
    each_s = _STARTING_S
    if has and not stays:
        first = np.maximum(0.0, loader.first_batch_s - make - feed.deliver_s)
        each_s = float(loader.iter_s.sum() + loader.shutdown_s.sum() + first.sum()) / times / has
    found = [Wanted(workers=0, stay=False, seconds=number * feed.at(0))]
    for workers in range(1, max(1, int(feed.cores)) + 1):
        seconds = make + number * feed.at(workers)
        found.append(Wanted(workers=workers, stay=False, seconds=seconds + workers * each_s))
        if not (loader.dataset_changes or loader.anew or loader.settings.get("rebuilt")):
            found.append(Wanted(workers=workers, stay=True, seconds=seconds))
    fastest = min(one.seconds for one in found)
    best = min(one for one in found if one.seconds <= AS_FAST * fastest)
    return None if (best.workers, best.stay) == (has, stays) else best
