"""Which numbers of workers and batches ahead are worth a thought on a machine, and how fast each would be."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from hotloop.feed.throughput import INLINE, BatchCost, Setting, process_settings
from hotloop.model import Pipeline, Setup
from hotloop.model.pipeline import AHEAD
from hotloop.model.predict import fast

#: Batches ahead per worker; the first is what is tried with every number of workers.
PREFETCH_FACTORS = (2, 1, 3, 4, 6, 8)
#: Numbers of workers this close to the best are tried with every factor: tails need more ahead.
_NEAR = 1.25
_MOST_WORKERS = 128
#: Workers beyond those that keep the cores busy, for tails.
_BEYOND = 1.5

Advance = Callable[[float, str], None]


@dataclass(frozen=True, kw_only=True)
class Timed:
    """A setting of one rank's loader with its predicted seconds per step and the bytes it takes beyond the
    training process.
    """

    setting: Setting
    s_per_step: float
    extra_bytes: int


@dataclass(kw_only=True)
class Field:
    """Every setting that fits a machine's memory, simulated once."""

    pipeline: Pipeline
    on: Setup  # the machine, and what else is as it is to be
    room_bytes: float  # for one rank's workers and batches
    known: dict[Setting, Timed] = field(default_factory=dict)

    def timed(self, setting: Setting) -> Timed:
        """A setting's prediction."""
        if setting not in self.known:
            memory = self.pipeline.memory
            self.known[setting] = Timed(
                setting=setting,
                s_per_step=fast(self.pipeline, setup_of(setting, self.on)),
                extra_bytes=setting.memory_bytes(int(memory.worker_bytes), int(memory.batch_bytes)),
            )
        return self.known[setting]

    def all(self, advance: Advance) -> list[Timed]:
        """Those worth a thought, what takes least memory first."""
        counts = list(self._counts())
        deep = [
            one._replace(prefetch_factor=-(-AHEAD // one.num_workers)) for one in counts if one.num_workers
        ]
        first = [one for one in (*counts, *deep) if self._fits(one)]
        for number, setting in enumerate(first):
            advance(0.7 * number / len(first), str(setting))
            self.timed(setting)
        best = min(self.timed(setting).s_per_step for setting in first)
        near = [one for one in first if one.num_workers and self.timed(one).s_per_step <= best * _NEAR]
        more = [one._replace(prefetch_factor=factor) for one in near for factor in PREFETCH_FACTORS[1:]]
        for number, setting in enumerate(more):
            advance(0.7 + 0.3 * number / len(more), str(setting))
            if self._fits(setting):
                self.timed(setting)
        return sorted(self.known.values(), key=lambda one: (one.extra_bytes, one.setting))

    def least(self, timed: Sequence[Timed], within: float) -> Setup:
        """The setup of the first of these within a share of the fastest."""
        fastest = min(one.s_per_step for one in timed)
        return setup_of(
            next(one for one in timed if one.s_per_step <= fastest * (1 + within)).setting, self.on
        )

    def _fits(self, setting: Setting) -> bool:
        memory = self.pipeline.memory
        taken = setting.memory_bytes(int(memory.worker_bytes), int(memory.batch_bytes))
        carried = memory.carries(setting.num_workers, setting.prefetch_factor)
        return setting == INLINE or (taken <= self.room_bytes and carried)

    def _counts(self) -> Iterable[Setting]:
        """No workers, then 1 to as many as keep pace with the step, and half as many again."""
        make, step = (float(times.mean()) for times in (self.pipeline.make_s, self.pipeline.step_s))
        cost = BatchCost(
            fetch_s=make * (1 - self.on.hit_rate),
            fetch_cpu_s=make * self.pipeline.make_cores,
            step_s=self.on.step_s or step,
            receive_s=self.pipeline.receive_s,
            overhead_s=self.pipeline.overhead_s,
            spread=1.0,  # of any size: the simulation knows the times themselves
        )
        on = self.pipeline.complete(self.on)
        busy = (on.cores or 1.0) / (on.ranks or 1) / max(self.pipeline.make_cores, 0.01)
        most = min(_MOST_WORKERS, math.ceil(_BEYOND * busy) + 1)  # more would only take turns
        recorded = self.pipeline.recorded.num_workers or 0
        if self.pipeline.iterable:  # more could hand out every sample again
            most = max(1, recorded)
        yield INLINE
        if self.pipeline.alone:
            return
        yield from process_settings(cost, most=most, prefetch_factors=PREFETCH_FACTORS[:1])
        now = self.pipeline.recorded
        if now.num_workers:
            yield Setting("process", now.num_workers, now.prefetch_factor or 2)


def setup_of(setting: Setting, on: Setup) -> Setup:
    """The setup that puts a setting in force."""
    factor = max(1, setting.prefetch_factor)
    return replace(on, num_workers=setting.num_workers, prefetch_factor=factor)


def setting_of(setup: Setup) -> Setting:
    """The setting of a complete setup."""
    workers = setup.num_workers or 0
    return Setting("process", workers, setup.prefetch_factor or 2) if workers else INLINE
