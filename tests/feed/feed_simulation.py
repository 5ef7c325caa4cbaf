"""A loader with workers, cores and a training step on a simulated clock: what the sizer's tests run against.

Workers take batches in order, each at most ``prefetch_factor`` ahead of delivery; the training thread takes
them in order. A batch waits (I/O), then computes; what computes at one time shares the cores evenly.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from hotloop.feed.sizing import Fed
from hotloop.feed.throughput import Method, Setting


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Costs of batch ``k``: seconds of waiting and of computing; and of a step and of moving a batch."""

    name: str
    batch: Callable[[int], tuple[float, float]]
    step_s: float
    step_cores: float = 0.0  # that the step computes on
    receive_s: float = 1e-4
    overhead_s: float = 1e-4
    start_s: float = 0.02
    num_bytes: int = 1 << 20
    methods: tuple[Method, ...] = ("inline", "process")


class _Worker:
    def __init__(self, method: str, ready_s: float) -> None:
        self.method = method
        self.starting_s = ready_s
        self.batch: int | None = None
        self.waiting_s = 0.0
        self.computing_s = 0.0
        self.began_s = 0.0
        self.cpu_s = 0.0
        self.retired = False


class Simulation:
    """Feeds batches on its own clock; :meth:`resize` at any time, as the real loader does."""

    def __init__(self, workload: Workload, setting: Setting, *, cores: float) -> None:
        self.workload, self.cores = workload, cores
        self.now_s = 0.0
        self.setting = setting
        self._workers: list[_Worker] = []
        self._next_to_make = 0
        self._next_to_take = 0
        self._done: dict[int, tuple[float, float, _Worker]] = {}
        self._training_cores = 0.0
        self.resize(setting)

    def resize(self, setting: Setting) -> None:
        """Start or retire workers; batches under way are finished."""
        self.setting = setting
        alive = [w for w in self._workers if not w.retired and w.method == setting.method]
        for worker in self._workers:
            worker.retired = worker not in alive[: setting.num_workers]
        for _ in range(setting.num_workers - len(alive)):
            ready_s = self.workload.start_s if setting.method == "process" else 0.0
            self._workers.append(_Worker(setting.method, ready_s))
        self._workers = [w for w in self._workers if not w.retired or w.batch is not None]
        self._assign()

    def next_batch(self) -> Fed:
        """Take the next batch, then train on it; what that cost (the step is the one before)."""
        asked_s = self.now_s
        number = self._next_to_take
        self._next_to_take += 1
        if self.setting.method == "inline" and number >= self._next_to_make:
            wall_s, cpu_s, method = *self._make_here(), "inline"
        else:
            while number not in self._done:
                self._advance(math.inf)
            wall_s, cpu_s, worker = self._done.pop(number)
            method = worker.method
            self._train(self.workload.receive_s, 1.0)
        self._assign()
        wait_s = self.now_s - asked_s
        began_s = self.now_s
        self._train(self.workload.step_s, self.workload.step_cores)
        current = [w for w in self._workers if not w.starting_s and not w.retired]
        return Fed(
            wait_s=wait_s,
            step_s=self.now_s - began_s,
            fetch_s=wall_s,
            fetch_cpu_s=cpu_s,
            num_bytes=self.workload.num_bytes,
            method=method,  # type: ignore[arg-type]
            num_workers=len(current) if method != "inline" else 0,
            main_cpu_s=self.workload.step_s * self.workload.step_cores,
        )

    def _make_here(self) -> tuple[float, float]:
        waiting_s, computing_s = self.workload.batch(self._next_to_make)
        self._next_to_make += 1
        began_s = self.now_s
        self._idle(waiting_s)
        self._train(computing_s, 1.0)
        return self.now_s - began_s, computing_s

    def _assign(self) -> None:
        limit = self._next_to_take + self.setting.num_ahead
        for worker in self._workers:
            if worker.batch is None and not worker.retired and not worker.starting_s:
                if self._next_to_make >= limit:
                    return
                worker.batch = self._next_to_make
                self._next_to_make += 1
                overhead_s = self.workload.overhead_s if worker.method == "process" else 0.0
                worker.waiting_s, computing_s = self.workload.batch(worker.batch)
                worker.computing_s, worker.cpu_s = computing_s + overhead_s, computing_s
                worker.began_s = self.now_s

    def _train(self, seconds: float, cores: float) -> None:
        """The training thread works: on cores it shares, or (0) on a device."""
        if not cores:
            self._idle(seconds)
            return
        self._training_cores, left_s = cores, seconds
        while left_s > 1e-12:
            speed = self._speed()
            left_s -= speed * self._advance(left_s / speed)
        self._training_cores = 0.0

    def _idle(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while until_s - self.now_s > 1e-12:
            self._advance(until_s - self.now_s)

    def _speed(self) -> float:
        busy = self._training_cores + sum(
            1 for w in self._workers if w.batch is not None and w.waiting_s <= 0 and not w.starting_s
        )
        return min(1.0, self.cores / busy) if busy else 1.0

    def _advance(self, most_s: float) -> float:
        """Go on to the next event, at most ``most_s``; the seconds that passed."""
        speed = self._speed()
        seconds = most_s
        for w in self._workers:
            if w.starting_s:
                seconds = min(seconds, w.starting_s)
            elif w.batch is not None:
                seconds = min(seconds, w.waiting_s if w.waiting_s > 0 else w.computing_s / speed)
        assert seconds < math.inf, "nothing under way: the simulated loader would wait for ever"
        self.now_s += seconds
        for w in self._workers:
            if w.starting_s:
                w.starting_s = max(0.0, w.starting_s - seconds)
                if w.starting_s < 1e-12:
                    w.starting_s = 0.0
            elif w.batch is not None:
                if w.waiting_s > 0:
                    w.waiting_s = 0.0 if w.waiting_s - seconds < 1e-12 else w.waiting_s - seconds
                else:
                    w.computing_s -= seconds * speed
                if w.waiting_s <= 0 and w.computing_s < 1e-12:
                    own_s = self.now_s - w.began_s
                    if w.method == "process":  # passing it on is not part of making it
                        own_s *= 1 - self.workload.overhead_s / max(own_s, self.workload.overhead_s)
                    self._done[w.batch] = (own_s, w.cpu_s, w)
                    w.batch = None
        self._workers = [w for w in self._workers if not w.retired or w.batch is not None]
        self._assign()
        return seconds


def mean_iteration_s(workload: Workload, setting: Setting, *, cores: float, first: int, last: int) -> float:
    """Seconds an iteration under one setting, over batches ``first`` to ``last``."""
    simulation = Simulation(workload, setting, cores=cores)
    began_s = 0.0
    for number in range(last):
        if number == first:
            began_s = simulation.now_s
        simulation.next_batch()
    return (simulation.now_s - began_s) / (last - first)


def lognormal(mean_s: float, spread: float, seed: int) -> Callable[[int], float]:
    """Heavy-tailed seconds, the same for the same number whoever asks."""
    sigma = math.sqrt(math.log1p(spread**2))

    def draw(number: int) -> float:
        chance = random.Random(seed * 1_000_003 + number)
        return mean_s * math.exp(chance.gauss(-sigma * sigma / 2, sigma))

    return draw


_heavy = lognormal(0.060, 1.2, seed=3)

#: The six of the issue. Seconds of waiting, of computing.
WAITING = Workload(name="waiting", batch=lambda k: (0.100, 0.002), step_s=0.010)
COMPUTING = Workload(name="computing", batch=lambda k: (0.0, 0.060), step_s=0.010)
TINY = Workload(name="tiny", batch=lambda k: (0.0, 5e-5), step_s=0.0015)
HUGE = Workload(
    name="huge",
    batch=lambda k: (0.004, 0.020),
    step_s=0.020,
    receive_s=0.002,
    overhead_s=0.005,
    num_bytes=40 << 20,
)
HEAVY = Workload(name="heavy", batch=lambda k: (0.8 * _heavy(k), 0.2 * _heavy(k)), step_s=0.020)
CACHED = Workload(name="cached", batch=lambda k: (0.0, 0.060 if k < 400 else 0.0003), step_s=0.004)
SIX = (WAITING, COMPUTING, TINY, HUGE, HEAVY, CACHED)
