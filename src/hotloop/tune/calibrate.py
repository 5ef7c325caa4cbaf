"""The model's numbers from one run: what was measured, and defaults with their source where it was not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from hotloop import units
from hotloop.diagnose import costs
from hotloop.diagnose.costs import Feed
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.memory_use import room_bytes
from hotloop.diagnose.worker_memory import worker_memory
from hotloop.errors import UsageError
from hotloop.footprint.training import host_peak
from hotloop.measure.steps import LoaderUse, Steps
from hotloop.model.handover import Handover, handover
from hotloop.model.pipeline import EpochCost, Floats, Memory, Pipeline, Setup
from hotloop.model.predict import alone
from hotloop.phases import COLUMN


@dataclass(frozen=True, kw_only=True)
class Assumed:
    """Where a run does not show it. FIELDNOTES 3.5: tiny batches and batches of 40 MB, 2 shared cores."""

    receive_s: float = 3e-4  # of the training thread, for a batch that is ready
    receive_s_per_byte: float = 0.1e-9
    latency_s: float = 2e-4
    overhead_s: float = 2e-4  # of a worker, between two batches
    ship_s: float = 5e-4  # a batch in a worker over the same in the training thread
    ship_s_per_byte: float = 0.5e-9  # pages of a new shared-memory segment
    fresh_bytes: float = 32 << 20  # malloc maps larger blocks anew each time, worker or not
    worker_bytes: float = 200 << 20
    stop_s: float = 0.01  # shutting idle workers down
    stacked_s: float = 1e-6  # a tensor of a sample that is collated
    gather_s: float = 4e-5  # a batch in one copy out of a cache that is whole (benchmarks/recovery)
    gather_s_per_byte: float = 0.125e-9  # FIELDNOTES 1.4: 3 KB samples in 0.39 us
    cached_sample_s: float = 2e-5  # a sample by itself, for a collation of the script's own


ASSUMED: Final = Assumed()
#: Epochs that must have shown what their first step takes beyond the others.
_LEAST_EPOCHS: Final = 3
#: Fewer seconds of a process's lines say nothing about what it wants of the cores.
_LINE_SECONDS: Final = 0.5
#: What waits for cores of others for this share of its time was slowed by them.
_CROWDED: Final = 0.25
#: How a doubt about it begins.
OTHERS: Final = "others used the machine"


def calibrate(evidence: Evidence) -> Pipeline:
    """The pipeline of the run's leading rank.

    Raises UsageError, with what would help, where the run shows no steps, no DataLoader, or too few of them.
    """
    feed = costs.feed_of(evidence)
    if feed is None:
        raise _cannot(evidence)
    loader, workers = feed.loader, feed.workers
    prefetch = int(loader.settings.get("prefetch_factor") or 2)
    seen = handover(evidence.process, loader.id, prefetch) if workers else Handover()
    batch_samples = _batch_samples(evidence.steps, loader)
    make_s, ship_s = _making(feed, batch_samples)
    own, first = _own_work(evidence.steps)
    make_cores, step_cores, doubts = demand(evidence, feed, float(own.mean()))
    receive_s, latency_s = _moving(seen, loader)
    step_s, epoch = own, _epoch_cost(loader, workers, seen)
    if workers and not loader.settings.get("persistent_workers"):
        # What is slow only because workers are new costs an epoch, and nothing where none are started.
        step_s, slow_s = _without(own, first)
        make_s, slow_make_s = _warm(make_s, seen)
        slow_make_s += max(0.0, (seen.late_first_s or 0.0) - latency_s)
        epoch = replace(epoch, slow_s=slow_s, wake_s=epoch.wake_s + slow_make_s)
    ranks, device = len(evidence.ranks), evidence.steps.device
    measured = Pipeline(
        make_s=make_s,
        ship_s=ship_s,
        make_cores=make_cores,
        collate_s=loader.collate_s,
        cached_s=_cached_s(loader, batch_samples),
        step_s=step_s,
        step_cores=step_cores,
        receive_s=receive_s,
        latency_s=latency_s,
        overhead_s=ASSUMED.overhead_s if seen.between_s is None else seen.between_s,
        device_s=device.busy_ratio * evidence.steps.step_s if device is not None else 0.0,
        transfer_s=feed.transfer_s,
        epoch=epoch,
        batches_per_epoch=_batches_per_epoch(loader, ranks, seen),
        other_s=_other_s(evidence.steps, loader, seen),
        evaluation_wait_s=_evaluation_wait_s(evidence.steps),
        batch_samples=batch_samples,
        num_samples=int(loader.dataset.get("len") or 0),
        recorded=Setup(
            num_workers=workers,
            prefetch_factor=prefetch,
            persistent_workers=bool(loader.settings.get("persistent_workers")),
            in_order=bool(loader.settings.get("in_order", True)),
            cores=evidence.cores,
            ranks=ranks,
        ),
        iterable=bool(loader.settings.get("iterable")),
        anew=bool(loader.dataset_changes),
        alone=bool(loader.dataset_written) and not workers,
        measured_s=evidence.steps.step_s,
        waited_s=evidence.steps.per_step("data_wait"),
        doubts=doubts,
        memory=_memory(evidence, loader, workers),
    )
    return alone(measured, loader.num_batches / max(1, loader.num_iterators))


def _making(feed: Feed, samples: float) -> tuple[Floats, float]:
    """(seconds of a batch in a worker, what of them shipping costs: a part of collating)."""
    loader = feed.loader
    ship_s = ASSUMED.ship_s + ASSUMED.ship_s_per_byte * _recycled_bytes(loader)
    if feed.workers:
        copied_s = ASSUMED.gather_s + ASSUMED.stacked_s * samples * len(_sizes(loader))
        most_s = max(0.0, loader.collate_s - copied_s) if loader.collate_s else np.inf
        return loader.make_s, min(ship_s, most_s, 0.8 * float(loader.make_s.mean()))
    # Short batches of the training thread are not all recorded as such, its fetches are.
    return loader.wait_s + ship_s, ship_s


def _cached_s(loader: LoaderUse, samples: float) -> float:
    """What a batch out of a cache takes in the process that makes it."""
    if loader.settings.get("collate_fn") == "torch.utils.data._utils.collate.default_collate":
        copied_s = ASSUMED.gather_s + ASSUMED.gather_s_per_byte * loader.batch_bytes
        fresh_s = ASSUMED.ship_s_per_byte * (sum(_sizes(loader)) - _recycled_bytes(loader))
        return copied_s + min(fresh_s, max(0.0, loader.collate_s - copied_s))  # collating does it
    return loader.collate_s + ASSUMED.cached_sample_s * samples


def _recycled_bytes(loader: LoaderUse) -> float:
    """Of a batch, what the training thread would write into memory that it has used before."""
    return sum(size for size in _sizes(loader) if size < ASSUMED.fresh_bytes)


def _sizes(loader: LoaderUse) -> list[float]:
    return [float(field.get("bytes") or 0) for field in loader.batch_fields] or [loader.batch_bytes]


def _own_work(steps: Steps) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """[n] seconds of each steady step's own work, and which steps are the first of an epoch."""
    columns = [COLUMN[phase] for phase in costs.BUSY_PHASES]
    kept = steps.steady if steps.steady.sum() >= 4 else np.ones(steps.num_steps, np.bool_)
    busy: Floats = steps.phases[kept][:, columns].sum(axis=1)
    return busy, steps.phases[kept][:, COLUMN["epoch_gap"]] > 0


def _without(own: Floats, first: npt.NDArray[np.bool_]) -> tuple[Floats, float]:
    """(the other steps, how much longer the first ones take); all of them and 0 where that is not seen."""
    if min(first.sum(), (~first).sum()) < _LEAST_EPOCHS:
        return own, 0.0
    longer = float(own[first].mean() - own[~first].mean())
    return (own[~first], longer) if longer > 0 else (own, 0.0)


def _warm(make_s: Floats, seen: Handover) -> tuple[Floats, float]:
    """(seconds of a batch in a worker that has made one, how much longer its first takes)."""
    if seen.first_s is None or seen.later_s is None or not 0 < seen.later_s < seen.first_s:
        return make_s, 0.0
    return make_s * min(1.0, seen.later_s / float(make_s.mean())), seen.first_s - seen.later_s


def _moving(seen: Handover, loader: LoaderUse) -> tuple[float, float]:
    """(receive, latency): what the training thread does for a batch, and what passes before it can."""
    assumed = ASSUMED.receive_s + ASSUMED.receive_s_per_byte * loader.batch_bytes
    receive = seen.ready_s if seen.ready_s is not None else min(assumed, seen.late_s or assumed)
    latency = ASSUMED.latency_s if seen.late_s is None else max(0.0, seen.late_s - receive)
    return receive, latency


def _epoch_cost(loader: LoaderUse, workers: int, seen: Handover) -> EpochCost:
    # A worker at work is waited for when it is shut down.
    usual = EpochCost(stop_s=ASSUMED.stop_s + float(np.mean(loader.make_s if workers else loader.wait_s)))
    again = loader.iter_s[1:]  # the first iterator starts the workers that stay, and imports what it needs
    if not workers and len(again):
        return replace(usual, inline_s=float(again.mean()))
    if not workers or not len(loader.iter_s):
        return usual
    kept = bool(loader.settings.get("persistent_workers"))
    start = float(loader.iter_s[0] if kept else loader.iter_s.mean())
    start_s = float(again.mean()) if kept and len(again) else usual.start_s
    return EpochCost(
        start_s=start_s,
        worker_start_s=max(0.0, start - start_s) / workers,
        wake_s=usual.wake_s if kept or seen.wake_s is None else seen.wake_s,
        stop_s=usual.stop_s if kept or seen.stop_s is None else seen.stop_s,
    )


def _batches_per_epoch(loader: LoaderUse, ranks: int, seen: Handover) -> float:
    """As seen where an epoch was finished, else from the dataset's length."""
    if loader.num_iterators > 1 or seen.stop_s is not None:
        return loader.batches_per_epoch
    length, size = loader.dataset.get("len"), loader.settings.get("batch_size")
    if isinstance(length, int) and isinstance(size, int) and length > 0 and size > 0:
        return float(max(loader.batches_per_epoch, np.ceil(length / size / ranks)))
    return float(np.inf)


def _other_s(steps: Steps, loader: LoaderUse, seen: Handover) -> float:
    """Seconds per step of what is neither the step, its wait, nor starting and stopping workers."""
    turned = float(loader.iter_s.sum()) + (seen.stop_s or 0.0) * max(0, loader.num_iterators - 1)
    epochs = max(0.0, steps.per_step("epoch_gap") - turned / max(1, steps.num_steps))
    return steps.per_step("evaluation") + steps.per_step("checkpoint") + epochs


def _evaluation_wait_s(steps: Steps) -> float:
    """Seconds per step that evaluation waits for batches, more than those out of a cache would take, in
    loaders that are gone through again.
    """
    again = [one for one in steps.loaders if one.role == "evaluation" and one.num_iterators > 1]
    waits = sum(max(0.0, float(one.wait_s.sum()) - len(one.wait_s) * ASSUMED.gather_s) for one in again)
    return min(waits / max(1, steps.num_steps), steps.per_step("evaluation"))


def _batch_samples(steps: Steps, loader: LoaderUse) -> float:
    known = steps.samples[np.isfinite(steps.samples)]
    if len(known):
        return float(known.mean())
    size = loader.settings.get("batch_size")
    return float(size) if isinstance(size, int) else 0.0


def _memory(evidence: Evidence, loader: LoaderUse, workers: int) -> Memory:
    machine, ranks = evidence.machine, max(1, len(evidence.ranks))
    main_bytes, room = host_peak(evidence.recording, evidence.process), room_bytes(evidence)
    own = [one.private_bytes for one in worker_memory(evidence.recording) if one.rank == evidence.steps.rank]
    free = machine.get("shm_free_bytes")
    return Memory(
        main_bytes=main_bytes,
        worker_bytes=float(np.mean(own)) if own and workers else ASSUMED.worker_bytes,
        batch_bytes=loader.batch_bytes,
        measured=bool(own and workers),
        room_bytes=np.inf if room is None else room / 2,  # feed.budget: "auto"
        shared_bytes=np.inf if free is None else evidence.limits.shm_ratio * float(free) / ranks,
        open_files=float(machine.get("open_files") or np.inf) / 2,
        batch_tensors=max(1, len(loader.batch_fields)),
    )


# -- what making batches and stepping want of the cores ------------------------------------------------------
#
# Work that waits for a core wants one as much as work that has it. On a machine that others use part of that
# waiting is theirs, but no worker more gets cores that are taken. What is wanted counts whole: settings that
# want more than there are gain nothing. A doubt says what the run's own wants do not explain.


def demand(evidence: Evidence, feed: Feed, busy_s: float) -> tuple[float, float, tuple[str, ...]]:
    """(cores wanted while making a batch, 0 to 1; during a step, of all its threads; doubts) of a run whose
    step works ``busy_s`` seconds on average.
    """
    making, stepping = _wanted_by_making(feed), _wanted_by_step(evidence, feed, busy_s)
    wanted = feed.workers * making + stepping
    got = min(1.0, feed.cores / wanted) if wanted > 0 else 1.0  # with the machine to itself
    makers, main = min(1.0, feed.got / got), min(1.0, feed.main_got / got)
    maker = "workers" if feed.workers else "the thread that makes batches"
    doubts = [
        f"{OTHERS}: {who} got {units.share(part * got)} of the core time wanted"
        for who, wants, part in ((maker, making, makers), ("the step's threads", stepping, main))
        if wants * (1 - part) >= _CROWDED
    ]
    return making, stepping, tuple(doubts[:1])


def _wanted_by_making(feed: Feed) -> float:
    """Share of making in which it has a core or waits for one."""
    loader = feed.loader
    counted, made = loader.worker_stats.get("cpu_s", 0.0), float(loader.make_s.sum())
    if feed.workers and loader.lines_total_s < _LINE_SECONDS and counted > 0 and made > 0:
        return min(1.0, counted / made / feed.got)
    return min(1.0, feed.computing_ratio)


def _wanted_by_step(evidence: Evidence, feed: Feed, busy_s: float) -> float:
    """Cores that the training process wants during a step, without making batches of its own."""
    if busy_s <= 0:
        return 0.0
    wanted_s = feed.step_cpu_s
    if evidence.used_cores is not None:
        making_s = feed.make_cpu_s if feed.workers == 0 else 0.0
        wanted_s = max(0.0, evidence.used_cores * (busy_s + feed.wait_s) - making_s) / feed.main_got
    return min(max(1.0, evidence.threads), wanted_s / busy_s)


def _cannot(evidence: Evidence) -> UsageError:
    steps = evidence.steps
    if not steps.num_steps:
        return UsageError(
            "the run shows no training steps: there is nothing to predict from",
            hint="record a run that trains: hotloop run -- COMMAND",
        )
    loader = steps.train_loader()
    if loader is None or "num_workers" not in loader.settings:
        return UsageError(
            f"the run trains without a DataLoader ({steps.num_steps} steps): nothing to predict",
            hint="hotloop report RUN says what steps wait for, hotloop what-if tries changes",
        )
    if evidence.enough:
        return UsageError(
            "the run does not show how long its DataLoader takes to make a batch",
            hint="its fetcher is not torch's, or all workers were killed: see hotloop report",
        )
    return UsageError(
        f"{steps.num_steps} steps in {steps.span_s:.2g} s are too few to predict from",
        hint=f"at least {evidence.limits.min_steps} steps and {evidence.limits.min_span_s:g} s: a longer run",
    )
