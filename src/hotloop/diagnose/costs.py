"""What removing a cause would save: the model of how a loader feeds the training step.

The model, per step and in seconds. A step that does its own loading takes ``busy + make``. Workers make
batches beside the step, so it takes the largest of

* ``busy + deliver``: the step's own work, plus taking over a finished batch,
* ``make / W``: the workers cannot keep up,
* ``(make_cpu + step_cpu) / cores``: the cores are full.

The last term is why sleeping work is hidden by more workers than cores and computing work is not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hotloop.diagnose.collating import making_lines, outside_samples
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.limits import Limits
from hotloop.measure.lines import package_of
from hotloop.measure.stepping import block_means
from hotloop.measure.steps import Floats, LoaderUse, Steps
from hotloop.stats import half_width

#: Phases in which the step itself works: workers run meanwhile.
BUSY_PHASES = ("transfer", "forward", "backward", "optimizer", "sync", "collective", "logging", "other")
#: The fewest workers whose step is predicted to take no more than this, of the fastest one, are advised.
AS_FAST = 1.03
#: Of these, what torch spreads over its threads on a CPU.
THREADED_PHASES = ("forward", "backward", "optimizer")


@dataclass(frozen=True, kw_only=True)
class Feed:
    """How the training loader feeds the step; seconds per step, averaged over the training span.

    ``loader`` holds only the lines of making. ``wait_s`` is the steady wait: what the first batch of each
    epoch takes beyond it is ``first_excess_s``.
    """

    loader: LoaderUse
    busy_s: float
    wait_s: float
    first_excess_s: float
    make_s: float
    make_cpu_s: float
    transfer_s: float  # that the device does not hide
    step_cpu_s: float
    deliver_s: float
    cores: float
    workers: int
    got: float = 1.0  # of the core time that the makers wanted
    main_got: float = 1.0  # of what the training process wanted
    computing_s: float = 0.0  # of ``busy_s``, on cores alone; 0 beside a device

    @property
    def held_up_s(self) -> float:
        """Of the step's own seconds those that wait for cores which the workers keep busy: all that want a
        core at once get as much of it.
        """
        if not self.workers or self.main_got >= Limits().got_ratio:
            return 0.0
        wanting = self.cores / max(0.01, self.main_got)
        making = min(self.workers, self.make_s * self.computing_ratio / max(1e-9, self.step_s))
        return self.computing_s * (1.0 - max(self.cores, wanting - making) / wanting)

    @property
    def computing_ratio(self) -> float:
        """Share of the making that computes; the rest waits for something else than a core."""
        return self.make_cpu_s / self.make_s / self.got if self.make_s > 0 else 1.0

    @property
    def step_s(self) -> float:
        """The step with its wait, without evaluation, checkpoints and what epochs add."""
        return self.busy_s + self.wait_s

    @property
    def make_alone_s(self) -> float:
        """What making takes the training thread, which gets more of a core than each of many workers."""
        waiting = self.make_s * (1.0 - self.computing_ratio)
        return min(self.make_s, waiting + self.make_cpu_s / self.main_got)

    def at(self, workers: int) -> float:
        """The step's predicted seconds with this number of workers."""
        if workers == 0:
            return self.busy_s + self.make_alone_s
        return max(self.busy_s + self.deliver_s, self.make_s / workers, self.cores_full_s())

    def cores_full_s(self) -> float:
        """The step's seconds if the cores were always busy with it."""
        return (self.make_cpu_s + self.step_cpu_s) / self.cores

    def with_make(self, ratio: float) -> Feed:
        """The same feed if making a batch took ``ratio`` of what it does."""
        busy_s = self.busy_s - (1.0 - ratio) * self.held_up_s
        return replace(self, make_s=self.make_s * ratio, make_cpu_s=self.make_cpu_s * ratio, busy_s=busy_s)

    def saved_by_workers(self, workers: int) -> float:
        """Seconds per step saved by this number of workers."""
        return min(self._saved(self.at(workers)), self._most())

    def saved_by_make(self, share: float) -> float:
        """Seconds per step saved if this share of making a batch were free, the workers as they are."""
        saved = self._saved(self.with_make(max(0.0, 1.0 - share)).at(self.workers))
        return min(saved, share * self._most())

    def _most(self) -> float:
        """What making can save at most: without workers, drawing the indices of a batch is a wait as well."""
        return self.make_s if self.workers == 0 else self.wait_s + self.held_up_s

    def best_workers(self, limit: int, first: int = 1) -> int:
        """The fewest workers within 3 % of the fastest predicted step."""
        times = {workers: self.at(workers) for workers in range(first, max(first, limit) + 1)}
        fastest = min(times.values())
        return min(workers for workers, seconds in times.items() if seconds <= fastest * AS_FAST)

    def fits(self) -> bool:
        """Whether the model explains the observed step: within 40 % of it."""
        return abs(self.at(self.workers) - self.step_s) <= 0.4 * self.step_s

    def _saved(self, predicted: float) -> float:
        """Observed less predicted, the prediction scaled by how far the model is off for the present
        settings.
        """
        now = self.at(self.workers)
        scaled = predicted * self.step_s / now if now > 0 else predicted
        most = self.wait_s + self.held_up_s
        return float(np.clip(self.step_s - max(scaled, self.busy_s - self.held_up_s), 0.0, most))


def offers(loader: LoaderUse, *remedies: str) -> tuple[str, ...]:
    """Those of the remedies that can be had: a stream is cut by its workers, so their number stays, and its
    samples have none to be kept by; what is no DataLoader takes none; workers that stay, and samples that are
    kept, do not see what changes in the dataset, and no worker what is written to it meanwhile.
    """
    if loader.own:
        return ()
    cannot = ["num-workers", "no-workers", "cache-samples", "bake"] if loader.settings.get("iterable") else []
    cannot += ["persistent-workers", "cache-samples", "bake"] if loader.dataset_changes else []
    cannot += ["num-workers", "cache-samples", "bake"] if loader.dataset_written else []
    return tuple(one for one in remedies if one not in cannot)


def feed_of(evidence: Evidence) -> Feed | None:
    """The training loader's feed, None without a DataLoader whose settings are known or without enough
    steps. Of several it is the one that is waited for most, and all that are made without workers beside it:
    waits for the others are the step's own work.
    """
    steps = evidence.steps
    waited, driving = waited_for(steps), steps.train_loader()
    if driving is None or "num_workers" not in driving.settings or not evidence.enough:
        return None
    loader = waited or driving
    transfer = steps.per_step("transfer") * steps.exposed("transfer")
    # A sampler of the user's draws indices in the training process, with workers as well.
    drawing = [line for line in outside_samples(steps) if package_of(line.within) != "torch"]
    making = making_lines(steps, loader)
    others = sum(
        float(one.wait_s.sum()) for one in steps.loaders if one.role == "train" and one is not loader
    )
    workers = int(loader.settings.get("num_workers") or 0)
    batches = max(loader.num_batches, len(loader.wait_s)) / steps.num_steps
    filling = evidence.first_pass if loader is driving else None
    make = _make_s(loader, workers)
    if filling is not None:
        make = filling.later_s / batches if workers == 0 else _make_s(filling.after(loader), workers) or make
    if make is None:
        return None
    excess, deliver = first_excess(loader, make) / steps.num_steps, deliver_s(loader)
    others += sum(line.seconds for line in drawing if line.phase == "data_wait")
    elsewhere = min(others / steps.num_steps, steps.per_step("data_wait"))
    busy = sum(steps.per_step(phase) for phase in BUSY_PHASES) + elsewhere
    main_got = evidence.got
    got = evidence.workers_got if workers else main_got
    computing = 1.0 if loader.make_on_cpu_ratio is None else loader.make_on_cpu_ratio
    make_cpu = make * batches * computing * got
    wait = steps.per_step("data_wait") - excess if filling is None else filling.later_s
    wait = max(0.0, wait - elsewhere)
    feed = Feed(
        loader=replace(loader, lines=making),
        busy_s=busy,
        wait_s=wait,
        first_excess_s=excess,
        make_s=make * batches,
        make_cpu_s=make_cpu,
        transfer_s=transfer,
        step_cpu_s=step_cpu_s(evidence, busy, wait, make_cpu if workers == 0 else 0.0),
        # On a crowded machine most of it is waiting for a core, which no other loader takes away; what new
        # workers would hand over would wait for one as well.
        deliver_s=deliver * batches * (main_got if workers else 1 / main_got),
        cores=evidence.rank_cores,
        workers=workers,
        got=got,
        main_got=main_got,
        computing_s=0.0 if evidence.on_accelerator else sum(map(steps.per_step, THREADED_PHASES)),
    )
    return feed if workers else _together(feed, steps)


def _together(feed: Feed, steps: Steps) -> Feed:
    """The feed with the batches that the training process makes for other loaders, which are made as well.

    With workers each loader would have its own. That these work side by side is not counted.
    """
    others = [one for one in alike(steps, feed.loader) if not one_batch_each(one)]
    waits = min(sum(float(one.wait_s.sum()) for one in others) / steps.num_steps, feed.busy_s)
    computing = waits * feed.computing_ratio * feed.got
    return replace(
        feed,
        loader=replace(
            feed.loader,
            lines=(*feed.loader.lines, *(line for one in others for line in making_lines(steps, one))),
            lines_total_s=feed.loader.lines_total_s + sum(one.lines_total_s for one in others),
        ),
        busy_s=feed.busy_s - waits,
        wait_s=feed.wait_s + waits,
        make_s=feed.make_s + waits,
        make_cpu_s=feed.make_cpu_s + computing,
        step_cpu_s=max(0.0, feed.step_cpu_s - computing),
        deliver_s=feed.deliver_s + sum(deliver_s(one) * len(one.wait_s) for one in others) / steps.num_steps,
    )


def alike(steps: Steps, loader: LoaderUse) -> list[LoaderUse]:
    """The other loaders that train with as many workers."""
    workers = loader.settings.get("num_workers")
    return [
        one
        for one in steps.loaders
        if one.role == loader.role == "train" and one.id != loader.id and not one.own
        and one.settings.get("num_workers", -1) == workers
    ]  # fmt: skip


def waited_for(steps: Steps) -> LoaderUse | None:
    """Of the training loaders the one that is waited for most, if that is clearly not the driving one."""
    driving = steps.train_loader()
    if driving is None:
        return None
    used = [one for one in steps.loaders if one.role == "train" and "num_workers" in one.settings]
    most = max(used, key=lambda one: float(one.wait_s.sum()), default=driving)
    return most if most.wait_s.sum() > 1.1 * driving.wait_s.sum() else None


def one_batch_each(loader: LoaderUse) -> bool:
    """Whether every batch has an iterator of its own, though an iterator would give several."""
    several = loader.length is not None and loader.length >= 2
    return several and loader.num_iterators >= 0.9 * loader.num_batches > 0


def first_excess(loader: LoaderUse, make_s: float) -> float:
    """Seconds that first batches took beyond making and handing over one, summed over all iterators."""
    if len(loader.first_batch_s) == 0:
        return 0.0
    waits = float(np.median(loader.wait_s)) if len(loader.wait_s) else 0.0
    usual = max(make_s + deliver_s(loader), waits)
    return float(np.maximum(0.0, loader.first_batch_s - usual).sum())


def deliver_s(loader: LoaderUse) -> float:
    """Seconds to take over a finished batch from a worker: measured, else from its size.

    0.7 ms for the smallest batches (0.7 to 1.2 were seen) and 1.5 GB/s are what a fresh shared-memory segment
    per batch gave on 2 cores.
    """
    if loader.deliver_s is not None:
        return loader.deliver_s
    return 7e-4 + loader.batch_bytes / 1.5e9


def interval(cost_s: float, series: Floats) -> tuple[float, float] | None:
    """The 95 % interval of a cost that goes with the mean of a per-step series; None with too few steps.

    The series is averaged in up to 20 blocks (neighbouring steps are not independent), the t interval of the
    block means is scaled to the cost.
    """
    values = series[np.isfinite(series)]
    means = block_means(values, least=3)
    mean = float(values.mean()) if len(means) else 0.0
    if mean <= 0 or cost_s <= 0:
        return None
    half = half_width(means) / mean
    return (max(0.0, cost_s * (1 - half)), cost_s * (1 + half))


def phase_interval(steps: Steps, cost_s: float, *phases: str) -> tuple[float, float] | None:
    """The interval of a cost that goes with these phases over the steady steps."""
    if steps.num_steps == 0:
        return None
    series = np.sum([steps.phase(phase) for phase in phases], axis=0)
    steady = steps.steady if steps.steady.any() else np.ones(steps.num_steps, bool)
    return interval(cost_s, series[steady])


def _make_s(loader: LoaderUse, workers: int) -> float | None:
    """Mean seconds to make one batch; without workers a fetch is a make."""
    if len(loader.make_s):
        return float(np.mean(loader.make_s))
    if workers == 0 and len(loader.wait_s):
        return float(np.mean(loader.wait_s))
    return None


def step_cpu_s(evidence: Evidence, busy_s: float, wait_s: float, make_cpu_s: float) -> float:
    """CPU seconds of the training process per step, without making batches (``make_cpu_s`` of them in it)
    and without pauses (evaluation, checkpoints), which are neither ``busy_s`` nor ``wait_s``.

    Measured by the launcher's samples where there are enough. Otherwise the host is taken to compute all the
    time, and on a CPU torch's threads with it in forward, backward and optimizer.
    """
    if evidence.used_cores is not None:
        return max(0.0, evidence.used_cores * (busy_s + wait_s) - make_cpu_s)
    if evidence.on_accelerator:
        return busy_s
    steps = evidence.steps
    threaded = sum(steps.per_step(phase) for phase in THREADED_PHASES)
    return (busy_s + (max(1.0, evidence.threads) - 1.0) * threaded) * steps.core_ratio
