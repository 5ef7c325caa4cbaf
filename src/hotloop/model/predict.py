"""Seconds per step of a setup: the simulation, an epoch at a time, with an interval and what limits it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from hotloop.feed.throughput import Setting
from hotloop.model.pipeline import Floats, Limit, Pipeline, Prediction, Setup
from hotloop.model.simulate import Stage, simulate
from hotloop.stats import t95

#: Batches simulated for the prediction itself; for each replicate of its interval as many as were measured.
_NUM_BATCHES: Final = 1000
_REPLICATE_BATCHES: Final = 300
_REPLICATES: Final = 16
#: Batches simulated at least, in fillings of the queue: the first two and the last are left out.
_FILLINGS: Final = 5
#: Resampled together, so that slow stretches stay together.
_BLOCK: Final = 10
_REDRAWN: Final = 10_000
#: Orders of batches that a search looks at beside the measured one, where their times vary by more than this.
_ORDERS: Final = 5
_EVEN: Final = 0.2

#: How far predictions were off where they were checked (95 %): FIELDNOTES 3.7, benchmarks/prediction.py.
_BAND_SAME: Final = 0.02
_BAND_FREE: Final = 0.06
_BAND_INLINE: Final = 0.10  # batches made by workers, predicted for the training thread, or turned round
_BAND_TRANSPORT: Final = 0.20
_BAND_SHARED: Final = 0.35
#: What a step takes longer after a wait of so many seconds, in which the core did something else or slept:
#: its code and data left the caches. A time, and the most of what it computes; benchmarks/recovery.
_COLD_S: Final = 1e-3
_COLD_SHARE: Final = 0.5
_COLD_AFTER_S: Final = 1.5e-3
#: How far off that is, as a part of it.
_COLD_DOUBT: Final = 0.6
#: From this share of the cores wanted on, work that computes beside other work is no longer free of it.
_SHARED: Final = 0.6
#: Rounds of finding times that crowding stretches to those measured; each halves what is left.
_FITTING: Final = 6
#: A model further off than this for its own run is not to be trusted for others.
_EXPLAINS: Final = 1.15


def predict(pipeline: Pipeline, setup: Setup | None = None) -> Prediction:
    """What ``setup`` would do (None: what the run had). Deterministic."""
    case = _case(pipeline, setup or Setup())
    seconds = case.s_per_step()
    spread = float(np.std(np.log(case.replicates()), ddof=1)) * t95(_REPLICATES - 1)
    shared = case.shared(seconds)
    margin = math.exp(math.hypot(spread, case.band(seconds, shared)))
    less_s, more_s = case.doubt_s(seconds)
    ranks = case.setup.ranks or 1
    return Prediction(
        s_per_step=seconds,
        low=(seconds - less_s) / margin,
        high=(seconds + more_s) * margin,
        samples_per_s=pipeline.batch_samples * ranks / seconds if seconds > 0 else 0.0,
        host_bytes=case.host_bytes(),
        limit=case.limit(seconds),
        confirm=shared or bool(pipeline.doubts),
        doubts=(*pipeline.doubts, *(_SHARED_WORDS,) * shared),
    )


_SHARED_WORDS = "the step computes on the same cores as the workers"


def gain(pipeline: Pipeline, setup: Setup, *, over: Setup | None = None) -> tuple[float, float, float]:
    """(ratio, low, high) of speeds, ``setup`` over ``over`` (None: as recorded), on the same times."""
    new, old = _case(pipeline, setup), _case(pipeline, over or Setup())
    ratio = old.s_per_step() / new.s_per_step()
    spread = float(np.std(np.log(old.replicates() / new.replicates()), ddof=1)) * t95(_REPLICATES - 1)
    if new.setup == old.setup:
        return 1.0, 1.0, 1.0
    seconds = new.s_per_step()
    margin = math.exp(math.hypot(spread, new.band(seconds, new.shared(seconds))))
    less_s, more_s = new.doubt_s(seconds)
    return (
        ratio,
        ratio / margin * seconds / (seconds + more_s),
        ratio * margin * seconds / (seconds - less_s),
    )


def fast(pipeline: Pipeline, setup: Setup) -> float:
    """Seconds per step alone, for a search over many setups.

    Where batches are uneven it is the mean over a few orders of them: which worker gets the slow ones is
    chance, and the best of many settings would be the luckiest.
    """
    case = _case(pipeline, setup)
    even = float(case.make_s.std()) <= _EVEN * float(case.make_s.mean())
    return float(
        np.mean([case.s_per_step(), *(() if even or not case.stage.workers else case.replicates(_ORDERS))])
    )


@dataclass(frozen=True, kw_only=True)
class _Case:
    """One setup, its costs worked out."""

    pipeline: Pipeline
    setup: Setup  # every field set
    make_s: Floats
    step_s: Floats
    warmed_s: float  # that a step takes less than in the run
    stage: Stage
    make_cpu_s: float
    step_cpu_s: float
    device_s: float
    turn_s: float  # of the training thread, from one epoch to the next
    other_s: float
    length: float  # batches of an epoch, of one rank

    def s_per_step(self) -> float:
        """Means of everything, times in the order measured."""
        num = max(_NUM_BATCHES, _FILLINGS * self.stage.ahead)
        return self._seconds(_tiled(self.make_s, num), _tiled(self.step_s, num))

    def replicates(self, number: int = _REPLICATES) -> Floats:
        """[number] the same with times drawn again in blocks."""
        generator = np.random.default_rng(7)
        found = []
        for _ in range(number):
            make, step = (_redrawn(times, generator) for times in (self.make_s, self.step_s))
            num = max(_REPLICATE_BATCHES, _FILLINGS * self.stage.ahead)
            found.append(self._seconds(_tiled(make, num), _tiled(step, num)))
        return np.array(found)

    def _seconds(self, make: Floats, step: Floats) -> float:
        """Seconds per step over an epoch: all of a short one, a long one drawn out from its steady part."""
        num, length = len(make), self.length
        if length <= num:
            count = int(length)
            spans = [slice(at, at + count) for at in range(0, num - count + 1, count)]
            total = sum(float(simulate(make[span], step[span], self.stage).ended_s[-1]) for span in spans)
            steady = (total / len(spans) + self.turn_s) / count
        else:
            # Not to the end: there the workers have nothing left to do.
            ended = simulate(make, step[: num - self.stage.ahead], self.stage).ended_s
            filled, workers = 2 * self.stage.ahead, max(1, self.stage.workers)
            # Whole rounds of the workers: batches may come in bursts.
            counted = (len(ended) - 1 - filled) // workers * workers
            rate = float(ended[filled + counted] - ended[filled]) / counted
            steady = rate
            if math.isfinite(length):
                steady += (float(ended[filled]) - (filled + 1) * rate + self.turn_s) / length
        return max(steady, self.device_s) + self.other_s

    def shared(self, seconds: float) -> bool:
        """Whether a step that computes meets workers that do on cores that do not suffice."""
        mean = float(self.make_s.mean()) + self.stage.overhead_s
        busy = min(self.stage.workers, mean / seconds) if seconds > 0 else 0.0  # workers, on average
        wanted = self.stage.step_cores + busy * self.stage.make_cores
        both = self.stage.step_cores > 0.25 and self.stage.make_cores > 0.1 and self.stage.workers > 0
        return both and wanted > _SHARED * self.stage.cores

    def band(self, seconds: float, shared: bool) -> float:
        """How far the model may be off, as a logarithm."""
        if self.setup == self.pipeline.recorded:
            return _BAND_SAME
        if shared or self.pipeline.doubts:
            return _BAND_SHARED
        if bool(self.stage.workers) != bool(self.pipeline.recorded.num_workers):
            return _BAND_INLINE
        moving = self.stage.receive_s + (self.pipeline.ship_s if self.stage.workers else 0.0)
        return _BAND_TRANSPORT if moving > 0.2 * seconds else _BAND_FREE

    def doubt_s(self, seconds: float) -> tuple[float, float]:
        """How much less and more a step may take, for what is not known of warm caches."""
        doubt_s = _COLD_DOUBT * self.warmed_s
        return min(doubt_s, seconds / 2), doubt_s

    def limit(self, seconds: float) -> Limit:
        """What would have to be faster first."""
        begun = self.turn_s + self.stage.wake_s + float(self.make_s.mean())
        inner = seconds - self.other_s - begun / self.length
        step = float(self.step_s.mean())
        if self.stage.workers == 0:
            if float(self.make_s.mean()) > 0.05 * inner:
                return "input"
        elif inner > 1.03 * max(step + self.stage.receive_s, self.device_s):
            full = (self.make_cpu_s + self.step_cpu_s) / self.stage.cores
            return "cores" if full > 0.9 * inner else "input"
        moving = self.pipeline.transfer_s + self.stage.receive_s
        return "transfer" if moving > 0.5 * (step + self.stage.receive_s) else "device"

    def host_bytes(self) -> float:
        """Processes, batches ahead and cache of all ranks; one cache for the machine."""
        memory = self.pipeline.memory
        stage = self.stage
        prefetch = stage.ahead // stage.workers if stage.workers else 0
        setting = Setting("process", stage.workers, prefetch)
        rank = memory.main_bytes + setting.memory_bytes(int(memory.worker_bytes), int(memory.batch_bytes))
        return rank * (self.setup.ranks or 1) + self.setup.cache_bytes


def _case(pipeline: Pipeline, asked: Setup) -> _Case:
    setup = pipeline.complete(asked)
    assert setup.num_workers is not None and setup.prefetch_factor is not None
    assert setup.cores is not None and setup.ranks is not None
    workers = setup.num_workers
    make, make_cores = _making(pipeline, setup)
    step, ratio = pipeline.step_s, 1.0
    warmed_s = _warmed_s(pipeline, setup, workers, float(make.mean()))
    if warmed_s:
        step = step * (1 - warmed_s / float(step.mean()))
    if setup.step_s is not None:
        ratio = setup.step_s / max(float(step.mean()), 1e-12)
        step = step * ratio
    # Another device: the host launches, it does not compute.
    step_cores = pipeline.step_cores if setup.step_s is None else min(1.0, pipeline.step_cores)
    kept, cores = bool(setup.persistent_workers), setup.cores / setup.ranks
    stage = Stage(
        workers=workers,
        ahead=workers * setup.prefetch_factor,
        receive_s=pipeline.receive_s if workers else 0.0,
        latency_s=pipeline.latency_s,
        overhead_s=pipeline.overhead_s if workers else 0.0,
        wake_s=0.0 if kept else pipeline.epoch.woken_s(workers, cores, pipeline.recorded),
        make_cores=make_cores,
        step_cores=step_cores,
        cores=cores,
        in_order=bool(setup.in_order),
    )
    return _Case(
        pipeline=pipeline,
        setup=setup,
        make_s=make,
        step_s=step,
        warmed_s=warmed_s,
        stage=stage,
        make_cpu_s=make_cores * float(make.mean()),
        step_cpu_s=step_cores * (float(step.mean()) + pipeline.receive_s),
        device_s=pipeline.device_s * ratio,
        turn_s=pipeline.epoch.between_s(workers, kept),
        # A cache serves what evaluates too.
        other_s=pipeline.other_s - setup.hit_rate * pipeline.evaluation_wait_s,
        length=max(1.0, pipeline.batches_per_epoch * (pipeline.recorded.ranks or 1) / setup.ranks),
    )


def _warmed_s(pipeline: Pipeline, setup: Setup, workers: int, make_s: float) -> float:
    """What a step takes less than in the run, since it waits less: its caches stay warm."""
    if setup == pipeline.recorded or setup.step_s is not None or pipeline.device_s:
        return 0.0
    step_s = float(pipeline.step_s.mean())
    each_s = (make_s + pipeline.overhead_s) / workers - step_s if workers else make_s
    wait_s = max(each_s, pipeline.receive_s if workers else 0.0)
    warmer = min(1.0, pipeline.waited_s / _COLD_AFTER_S) - min(1.0, wait_s / _COLD_AFTER_S)
    return max(0.0, warmer) * min(_COLD_S, _COLD_SHARE * min(1.0, pipeline.step_cores) * step_s)


def _making(pipeline: Pipeline, setup: Setup) -> tuple[Floats, float]:
    """([n] seconds of a batch where the setup makes it, the share of them that computes)."""
    mean = float(pipeline.make_s.mean())
    fixed = min(mean, pipeline.collate_s + pipeline.ship_s)  # computes, whatever a sample costs
    sample = mean - fixed
    computing = max(0.0, pipeline.make_cores * mean - fixed) / max(mean - fixed, 1e-12)
    ship = pipeline.ship_s if setup.num_workers else 0.0
    fixed -= min(pipeline.ship_s - ship, 0.8 * (sample + fixed))
    hit = fixed if pipeline.cached_s is None else pipeline.cached_s + ship
    rest = 1 - setup.hit_rate
    made = rest * (sample + fixed) + setup.hit_rate * hit
    cores = made - rest * sample * (1 - min(1.0, computing))
    return pipeline.make_s * (made / mean if mean > 0 else 0.0), min(1.0, cores / made if made > 0 else 0.0)


def _tiled(times: Floats, num: int) -> Floats:
    """[num] of these times with their mean: all of them again and again, or blocks from all over them."""
    if len(times) <= num:
        return np.resize(times, num)
    starts = np.linspace(0, len(times) - _BLOCK, math.ceil(num / _BLOCK)).astype(np.int64)
    drawn: Floats = times[starts[:, None] + np.arange(_BLOCK)].ravel()[:num]
    mean = float(drawn.mean())
    return drawn * (float(times.mean()) / mean) if mean > 0 else drawn


def _redrawn(times: Floats, generator: np.random.Generator) -> Floats:
    """As many again (of very many: enough), in blocks of neighbours."""
    num = min(len(times), _REDRAWN)
    starts = generator.integers(0, len(times), math.ceil(num / _BLOCK))
    drawn: Floats = times[(starts[:, None] + np.arange(_BLOCK)) % len(times)]
    return drawn.ravel()[:num]


def alone(pipeline: Pipeline, epoch: float) -> Pipeline:
    """The pipeline with its own crowding taken out of its times.

    They were measured while workers and step shared the cores: with free cores they would be what the
    simulation of the recorded setup stretches to what was measured. Where the model then does not explain
    its own run, whose epochs had ``epoch`` batches, it says so in ``doubts``.
    """
    make, step = pipeline.make_s, pipeline.step_s
    for _ in range(_FITTING):
        case = _case(pipeline, Setup())
        num = max(_REPLICATE_BATCHES, _FILLINGS * case.stage.ahead)
        steps = _tiled(case.step_s, num - case.stage.ahead)
        course = simulate(_tiled(case.make_s, num), steps, case.stage)
        pipeline = replace(
            pipeline,
            make_s=(pipeline.make_s + make / course.make_stretch) / 2,
            step_s=(pipeline.step_s + step / course.step_stretch) / 2,
        )
    seen = replace(pipeline, batches_per_epoch=max(1.0, epoch))
    off = _case(seen, Setup()).s_per_step() / pipeline.measured_s
    if 1 / _EXPLAINS < off < _EXPLAINS:
        return pipeline
    words = f"the model gives {off - 1:+.0%} for the run it was made from"
    return replace(pipeline, doubts=(*pipeline.doubts, words))
