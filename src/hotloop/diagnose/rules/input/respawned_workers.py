"""``input/respawned-workers``: workers are started again every epoch, and the epoch is short."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hotloop import units
from hotloop.diagnose import costs
from hotloop.diagnose.costs import Feed, Floats
from hotloop.diagnose.crowding import left_by_others, makers
from hotloop.diagnose.discovery import ARGUMENT
from hotloop.diagnose.evidence import Evidence
from hotloop.findings import Finding
from hotloop.measure.steps import LoaderUse

ID = "input/respawned-workers"
EFFORT = ARGUMENT
COSTED = True


def check(evidence: Evidence) -> Iterator[Finding]:
    """Price what every epoch but the first pays for starting and stopping its workers."""
    feed = costs.feed(evidence)
    if feed is None or feed.workers == 0 or feed.loader.settings.get("persistent_workers"):
        return
    loader = feed.loader
    if loader.own:
        return  # only torch's DataLoader keeps workers
    epochs = loader.num_iterators
    if epochs < 2:
        return
    steps = evidence.steps
    # What starting and stopping waited for cores that other programs held is not its own.
    got = min(left_by_others(evidence, pids) for pids in ((steps.pid,), makers(evidence, feed.workers)))
    per_epoch = got * _started_s(feed) / (epochs - 1)
    persistent, alone = _saved(feed, steps.num_steps, got)
    without = steps.step_s - alone <= costs.AS_FAST * (steps.step_s - persistent)
    grows = loader.anew and costs.one_batch_each(loader)  # workers that stay would miss what came since
    if grows:
        without, persistent = True, 0.0
    cost = max(persistent, alone)
    if cost < evidence.limits.mention_ratio * steps.step_s:
        return
    yield Finding(
        id=ID,
        message=(
            f"Every epoch starts {feed.workers} new worker "
            f"{'process' if feed.workers == 1 else 'processes'} and "
            f"stops them again: {units.duration(per_epoch)} for {loader.batches_per_epoch:.0f} "
            f"batch{'' if round(loader.batches_per_epoch) == 1 else 'es'}."
        ),
        advice=_NO_WORKERS
        if grows
        else _ONE_ITERATOR
        if costs.one_batch_each(loader)
        else _changing(loader, without)
        if loader.dataset_changes
        else _advice(without, rebuilt=bool(loader.settings.get("rebuilt"))),
        evidence=(
            f"{epochs} epochs of {loader.batches_per_epoch:.0f} batches, persistent_workers=False",
            f"starting an iterator takes {units.duration(_mean(loader.iter_s))}, its first batch "
            f"{units.duration(_mean(loader.first_batch_s))}, stopping it "
            f"{units.duration(_mean(loader.shutdown_s))}",
            f"making a batch takes {units.duration(feed.make_s)}, taking it over "
            f"{units.duration(feed.deliver_s)}",
            "predicted for a step: "
            + ("" if grows else f"{units.duration(steps.step_s - persistent)} with workers that stay, ")
            + f"{units.duration(steps.step_s - alone)} without workers",
            *(
                (f"other programs held cores: {units.share(got)} of starting and stopping is counted",)
                if got < 1
                else ()
            ),
        ),
        cost_s_per_step=cost,
        cost_ci95=_interval(cost, max(_saved(feed, steps.num_steps, 1.0)), feed),
        where=loader.where,
        remedies=costs.offers(
            loader,
            *(("no-workers",) if without else ()),
            *(() if grows else ("persistent-workers",)),
        ),
        data={"per_epoch_s": per_epoch, "num_workers_0_saves_s_per_step": max(0.0, alone)},
    )


_ONE_ITERATOR = (
    "Make the iterator once, batches = iter(loader), and ask next(batches) in each step: next(iter(loader)) "
    "starts workers for every batch, and only ever takes the first one of an epoch."
)

_NO_WORKERS = (
    "Set num_workers=0: workers are started for every batch. An iterator that is kept would not see what the "
    "dataset has gained since."
)


def _changing(loader: LoaderUse, without: bool) -> str:
    """Of a dataset whose attributes change between epochs: workers that stay have those of the first."""
    return (
        f"{'Set num_workers=0, or hold' if without else 'Hold'} {', '.join(loader.dataset_changes)} of the "
        "dataset in shared memory (torch.multiprocessing.Value) and then set persistent_workers=True: what "
        "changes between epochs otherwise reaches fresh workers only. More workers would make it worse."
    )


def _advice(without: bool, *, rebuilt: bool) -> str:
    once = "build the DataLoader once, before the loop over epochs, and " if rebuilt else ""
    if without:
        return (
            "Set num_workers=0: a step is predicted to be no slower without workers than with ones that "
            "stay; "
            f"with workers, at least {once}set persistent_workers=True. More workers would make it worse."
        )
    if rebuilt:
        return (
            f"{once[0].upper()}{once[1:]}set persistent_workers=True: one that is built anew starts its "
            "workers anew. More workers would make it worse."
        )
    return (
        "Set persistent_workers=True so that the workers outlive the epoch, or build the iterator once over "
        "many "
        "epochs; more workers would make it worse."
    )


def _started_s(feed: Feed) -> float:
    """Seconds of all starts and stops after the first start."""
    loader = feed.loader
    return _after_first(loader.iter_s) + float(loader.shutdown_s.sum()) + _after_first(_excess(feed))


def _saved(feed: Feed, num_steps: int, got: float) -> tuple[float, float]:
    """Seconds per step that workers which stay would save, and that none would; ``got``: of what starting and
    stopping took, the part that is its own.
    """
    gap = _after_first(feed.loader.iter_s) + float(feed.loader.shutdown_s.sum())
    alone = got * (gap / num_steps + feed.first_excess_s) + feed.wait_s - _made_alone_s(feed)
    return got * _started_s(feed) / num_steps, alone


def _made_alone_s(feed: Feed) -> float:
    """Seconds to make a step's batch in the training process: without what the first batch of every new
    worker takes longer (pages it copies, caches it fills); as many of the longest are left out, as nobody
    saw which were the first.
    """
    make = np.sort(feed.loader.make_s)
    fresh = min(feed.workers * feed.loader.num_iterators, len(make) // 2)
    usual = float(make[: len(make) - fresh].mean() / make.mean()) if len(make) and make.mean() > 0 else 1.0
    return feed.make_s * usual


def _interval(cost: float, seen: float, feed: Feed) -> tuple[float, float] | None:
    """The spread over the epochs; beside other programs up to what was seen, their part included."""
    spread = costs.interval(cost, _per_epoch(feed))
    if seen <= cost:
        return spread
    low, high = spread or (cost, cost)
    return low, max(high, seen)


def _excess(feed: Feed) -> Floats:
    loader = feed.loader
    return np.maximum(0.0, loader.first_batch_s - (feed.make_s + feed.deliver_s))


def _per_epoch(feed: Feed) -> Floats:
    """What each epoch paid, for the spread."""
    loader = feed.loader
    parts = [loader.iter_s, _excess(feed)]
    length = min(len(part) for part in parts)
    return np.sum([part[:length] for part in parts], axis=0)[1:] if length else np.zeros(0)


def _after_first(values: Floats) -> float:
    return float(values[1:].sum())


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else 0.0
