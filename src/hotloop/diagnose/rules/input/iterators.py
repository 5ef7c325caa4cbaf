"""Iterators: first batches that take far longer, workers started every epoch, a new iterator every batch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hotloop.diagnose.collating import outside_samples
from hotloop.diagnose.costs import (
    AS_FAST,
    Feed,
    alike,
    feed_of,
    interval,
    offers,
    one_batch_each,
    phase_interval,
    waited_for,
)
from hotloop.diagnose.evidence import Evidence, FirstPass, cause, rule, spot
from hotloop.diagnose.groups import asking, hottest, select
from hotloop.diagnose.making import beside, makes
from hotloop.diagnose.rules.input.workers import worker_limit
from hotloop.findings import Finding, Place
from hotloop.measure.steps import Floats
from hotloop.units import duration, share

_NO_WORKERS = (
    "Set num_workers=0: workers are started for every batch. An iterator that is kept would not see what the "
    "dataset has gained since."
)
_ONE_ITERATOR = (
    "Make the iterator once, batches = iter(loader), and ask next(batches) in each step: next(iter(loader)) "
    "starts workers for every batch, and only ever takes the first one of an epoch."
)


@rule("input/iterator-per-step", costed=True)
def iterator_per_step(evidence: Evidence) -> Iterator[Finding]:
    """Price what a new iterator takes beyond making its one batch; one with workers has a rule of its own."""
    feed = feed_of(evidence)
    if feed is None or feed.workers or feed.loader.anew or not one_batch_each(feed.loader):
        return  # an iterator that is kept would miss what came since (a replay buffer)
    steps, loader = evidence.steps, feed.loader
    asked = asking(select(steps, lambda line: line.phase in ("data_wait", "epoch_gap")))
    first = feed.wait_s + feed.first_excess_s
    cost = max(0.0, first - feed.make_s + float(loader.iter_s.sum()) / steps.num_steps)
    if cost < evidence.limits.worth_fixing_ratio * steps.step_s:
        return
    yield cause(
        evidence,
        message=(
            f"Every step makes a new iterator of {loader.length} batches and takes one: "
            f"{duration(cost)} for a batch that is made in {duration(feed.make_s)}."
        ),
        advice=(
            "Make the iterator once, batches = iter(loader), ask next(batches) in each step, and make a new "
            "one when it raises StopIteration. The order is then that of whole epochs: every sample once in "
            "each."
        ),
        numbers=[
            f"{loader.num_iterators} iterators for {loader.num_batches} batches; one would give "
            f"{loader.length}",
            f"the first batch of an iterator takes {duration(first)} of each step, making it "
            f"{duration(feed.make_s)}",
        ],
        cost_s=cost,
        ci95=phase_interval(steps, cost, "data_wait"),
        where=asked or loader.where,
        data={"iterators": loader.num_iterators, "length": loader.length},
    )


@rule("input/respawned-workers", costed=True)
def respawned_workers(evidence: Evidence) -> Iterator[Finding]:
    """Price what every epoch but the first pays for starting and stopping its workers."""
    feed, steps = feed_of(evidence), evidence.steps
    if feed is None or feed.workers == 0 or feed.loader.settings.get("persistent_workers"):
        return
    loader, epochs = feed.loader, feed.loader.num_iterators
    if loader.own or epochs < 2:
        return  # only torch's DataLoader keeps workers
    started = _started_s(feed)
    # Seconds per step that workers which stay would save, and that none would.
    persistent = started / steps.num_steps
    gap = float(loader.iter_s[1:].sum() + loader.shutdown_s.sum()) / steps.num_steps
    alone = gap + feed.first_excess_s + feed.wait_s - feed.make_alone_s
    without = steps.step_s - alone <= AS_FAST * (steps.step_s - persistent)
    without = without and feed.at(0) <= AS_FAST * feed.at(feed.best_workers(worker_limit(feed, evidence)))
    grows = loader.anew and one_batch_each(loader)  # workers that stay would miss what came since
    if grows:
        without, persistent = True, 0.0
    others = [one for one in alike(steps, loader) if not one.settings.get("persistent_workers")]
    starting = sum(float(one.iter_s[1:].sum() + one.shutdown_s.sum()) for one in others) / steps.num_steps
    cost = starting + (max(persistent, alone) if without else persistent)
    if cost < evidence.limits.mention_ratio * steps.step_s:
        return
    batches = loader.batches_per_epoch
    per_epoch = started / (epochs - 1)
    stay = "" if grows else f"{duration(steps.step_s - persistent)} with workers that stay, "
    yield cause(
        evidence,
        message=(
            f"Every epoch starts {feed.workers} new worker "
            f"{'process' if feed.workers == 1 else 'processes'} and stops them again: "
            f"{duration(per_epoch)} for {batches:.0f} batch{'' if round(batches) == 1 else 'es'}."
        ),
        advice=_advice(feed, without, grows) + beside(evidence, loader),
        numbers=[
            f"{epochs} epochs of {batches:.0f} batches, persistent_workers=False",
            f"starting an iterator takes {_mean(loader.iter_s)}, its first batch "
            f"{_mean(loader.first_batch_s)}, stopping it {_mean(loader.shutdown_s)}",
            f"{makes(feed)}; taking one over takes {duration(feed.deliver_s)}",
            *([f"{len(others)} more that train start theirs: {duration(starting)} a step"] if others else []),
            f"predicted for a step: {stay}{duration(steps.step_s - alone)} without workers",
        ],
        cost_s=cost,
        ci95=_interval(cost, feed),
        where=loader.where,
        remedies=offers(
            loader, *(("no-workers",) if without else ()), *(() if grows else ("persistent-workers",))
        ),
        data={"per_epoch_s": per_epoch, "num_workers_0_saves_s_per_step": max(0.0, alone)},
    )


def _advice(feed: Feed, without: bool, grows: bool) -> str:
    loader = feed.loader
    if grows:
        return _NO_WORKERS
    if one_batch_each(loader):
        return _ONE_ITERATOR
    if loader.dataset_changes:  # workers that stay have the attributes of the first epoch
        return (
            f"{'Set num_workers=0, or hold' if without else 'Hold'} {', '.join(loader.dataset_changes)} of "
            "the dataset in shared memory (torch.multiprocessing.Value) and then set "
            "persistent_workers=True: what changes between epochs otherwise reaches fresh workers only."
        )
    rebuilt = bool(loader.settings.get("rebuilt"))
    once = "build the DataLoader once, before the loop over epochs, and " * rebuilt
    alone = (
        "set num_workers=0: a step is predicted to be no slower without workers than with ones that stay; "
        "with workers, at least "
    ) * without
    text = f"{alone}{once}set persistent_workers=True."
    return text[0].upper() + text[1:]


def _started_s(feed: Feed) -> float:
    """Seconds of all starts and stops after the first start."""
    loader = feed.loader
    return float(loader.iter_s[1:].sum() + loader.shutdown_s.sum() + _excess(feed)[1:].sum())


def _interval(cost: float, feed: Feed) -> tuple[float, float] | None:
    """The spread over the epochs."""
    excess = _excess(feed)
    length = min(len(feed.loader.iter_s), len(excess))
    return interval(cost, (feed.loader.iter_s[:length] + excess[:length])[1:])


def _excess(feed: Feed) -> Floats:
    return np.maximum(0.0, feed.loader.first_batch_s - (feed.make_s + feed.deliver_s))


def _mean(values: Floats) -> str:
    return duration(float(values.mean()) if len(values) else 0.0)


#: So many first batches show what each epoch pays.
_MANY = 3


@rule("input/cold-start")
def cold_start(evidence: Evidence) -> Iterator[Finding]:
    """Price first batches beyond the making of one; a single one only where it is long and the run not much
    longer.
    """
    feed, limits, steps = feed_of(evidence), evidence.limits, evidence.steps
    if feed is None:
        return
    loader = feed.loader
    if evidence.first_pass is not None and not waited_for(steps):
        yield _filling(evidence, evidence.first_pass, loader.where)
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
    total, once = float(excess[slow].sum()), int(slow.sum()) == 1
    # One slow start fades in a longer run; the next epoch's does not.
    if not slow.any() or total / steps.span_s < (limits.medium_ratio if once else limits.worth_fixing_ratio):
        return
    typical = float(np.median(firsts[slow]))
    # The user's code in the training process that first batches waited for, making samples left out.
    hot = hottest(outside_samples(steps), total)
    if hot is not None and hot.share < limits.dominant_line_ratio:
        hot = None
    staying = offers(loader, "persistent-workers") if feed.workers and not once else ()
    spawned = str((feed.workers and loader.settings.get("multiprocessing_context")) or "")
    most = f", most of it {hot.what} at {spot(hot.place)}" if hot is not None else ""
    yield cause(
        evidence,
        message=(
            f"The first batch {'of the run' if once else 'of each epoch'} takes {duration(typical)}, "
            f"{typical / max(1e-9, feed.make_s):.0f} times the making of a batch{most}."
        ),
        advice=_first_batch_advice(spawned, bool(staying)) if hot is None else _ORDER,
        numbers=[
            f"{int(slow.sum())} slow first {'batch' if once else 'batches'}, {duration(total)} in all "
            f"({share(total / steps.span_s)} of the training span)",
            f"making a batch takes {duration(feed.make_s)}",
            f"num_workers={feed.workers}" + (f", start method {spawned}" if spawned else ""),
        ],
        cost_s=total / steps.num_steps,
        where=loader.where if hot is None else hot.place,
        remedies=staying,
        data={"first_batch_s": typical, "once": once},
    )


def _filling(evidence: Evidence, filling: FirstPass, where: Place | None) -> Finding:
    first, later = duration(filling.wait_s), duration(filling.later_s)
    return cause(
        evidence,
        severity="info",
        message=(
            f"The first pass over the data waits {first} per step, later ones {later}: what it reads or "
            "makes is kept. Costs of the input are those of later passes."
        ),
        advice=(
            "Leave it in a run of many epochs; where every start of one hurts, store what the first pass "
            "makes on disk."
        ),
        numbers=[f"{duration(filling.excess_s)} in {filling.num_steps} steps that later passes do not take"],
        where=where,
        remedies=(),
        data={"first_pass_wait_s": filling.wait_s, "later_wait_s": filling.later_s},
    )


_ORDER = (
    "This runs before the first batch and not for its samples (a sampler that orders them): prepare once "
    "what does not change, on arrays, and leave only the shuffling to each epoch."
)


def _first_batch_advice(start_method: str, staying: bool) -> str:
    if staying:
        return (
            "Keep the workers over epochs (persistent_workers=True) and open files or fill caches once per "
            "worker, not once per epoch."
        )
    if start_method in ("spawn", "forkserver"):
        return (
            "Use the start method fork where the dataset allows it, or keep imports and large objects out "
            "of what every new worker must load."
        )
    return "Do the one-time work (opening, indexing, decoding) before training or store its result on disk."
