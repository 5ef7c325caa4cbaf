"""A DataLoader and the step it feeds, event by event: workers, the queue, the training thread, cores.

It follows torch's dispatch: worker ``k % W`` makes batch ``k``, ``W x prefetch_factor`` batches are asked for
at the start and one more whenever one is taken. Cores are shared as by a fair scheduler: where more threads
want one than there are, all that compute slow down alike, and what sleeps does not (processor sharing, in
fluid form). Workers then advance on one clock of their own, whose speed changes at events: an event costs
O(log W).
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from typing import Final

import numpy as np

from hotloop.model.pipeline import Floats

#: Batches of which ``waits`` are told at most: enough for a heavy tail.
MOST_BATCHES: Final = 3000


@dataclass(frozen=True, kw_only=True)
class Stage:
    """How batches are made and handed over. Seconds, and cores' worth of work while at it.

    ``make_cores`` is what making one batch wants of a core (0 sleeps, 1 computes), ``step_cores`` what the
    step wants (its threads).
    """

    workers: int
    ahead: int
    receive_s: float = 0.0
    latency_s: float = 0.0
    overhead_s: float = 0.0
    wake_s: float = 0.0
    make_cores: float = 0.0
    step_cores: float = 0.0
    cores: float = np.inf
    in_order: bool = True


@dataclass(frozen=True, kw_only=True)
class Course:
    """What came of it: when each step ended ([n], from the iterator's start), and how much longer than with
    free cores making a batch and a step took on average.
    """

    ended_s: Floats
    make_stretch: float = 1.0
    step_stretch: float = 1.0


def simulate(make_s: Floats, step_s: Floats, stage: Stage) -> Course:
    """One epoch of batches that take ``make_s`` and steps of ``step_s`` where cores are free.

    With fewer steps than batches it ends in mid-epoch, workers still at work.
    """
    if stage.workers == 0:
        making, stepping = (_stretch(cores, cores, stage) for cores in (stage.make_cores, stage.step_cores))
        ended_s = np.cumsum(making * make_s[: len(step_s)] + stepping * step_s)
        return Course(ended_s=ended_s, make_stretch=making, step_stretch=stepping)
    return _Run(make_s, step_s, stage).finish()


def waits(make_s: Floats, step_s: Floats, *, workers: int, prefetch: int, in_order: bool = True) -> Floats:
    """[n] seconds each step waits for its batch where cores are free, the filling of the queue left out."""
    count = min(len(make_s), len(step_s), MOST_BATCHES)
    stage = Stage(workers=workers, ahead=max(1, workers * prefetch), in_order=in_order)
    step_s = step_s[:count]
    waited = np.diff(simulate(make_s[:count], step_s, stage).ended_s, prepend=0.0) - step_s
    return np.maximum(0.0, waited)[min(stage.ahead, count // 4) :]


def speeds(stage: Stage, stepping: bool) -> list[tuple[float, float]]:
    """(worker's, step's) speed with 0..W workers at work, 1 where the cores suffice."""
    found = []
    for active in range(stage.workers + 1):
        wanted = active * stage.make_cores + stepping * stage.step_cores
        worker, step = (1 / _stretch(cores, wanted, stage) for cores in (stage.make_cores, stage.step_cores))
        found.append((worker, step))
    return found


def _stretch(cores: float, wanted: float, stage: Stage) -> float:
    """How much longer work that wants ``cores`` takes while ``wanted`` of them are wanted in all."""
    computing = min(1.0, cores)
    return 1 - computing + computing * max(1.0, wanted / stage.cores)


class _Run:
    """One epoch under way."""

    def __init__(self, make_s: Floats, step_s: Floats, stage: Stage) -> None:
        self.stage = stage
        self.make = (make_s + stage.overhead_s).tolist()
        self.step = (step_s + stage.receive_s).tolist()
        queues = stage.workers if stage.in_order else 1
        self.waiting: list[deque[int]] = [deque() for _ in range(queues)]
        self.idle = [1 if stage.in_order else stage.workers for _ in range(queues)]
        self.running: list[tuple[float, int]] = []  # (worker clock at its end, batch)
        self.clock = 0.0  # of the workers
        self.ready: list[tuple[float, float]] = []  # heap of (batch, arrival), out of order turned round
        self.asked = 0

    def finish(self) -> Course:
        """Runs to the last step."""
        stage, num = self.stage, len(self.step)
        free, busy = speeds(stage, False), speeds(stage, True)
        ended, now, left = [0.0] * num, 0.0, 0.0
        running, ready = self.running, self.ready
        for _ in range(stage.ahead):
            self._ask(stage.wake_s)
        taken = done = 0
        worked = made = stepped = 0.0  # seconds, and those with free cores
        inf = float("inf")
        while done < num:
            stepping = taken > done
            worker_speed, step_speed = (busy if stepping else free)[len(running)]
            made_in = (running[0][0] - self.clock) / worker_speed if running else inf
            if stepping:
                turn_in = left / step_speed
            elif ready and (not stage.in_order or ready[0][0] == taken):
                turn_in = max(0.0, (ready[0][1] if stage.in_order else ready[0][0]) - now)
            else:
                turn_in = inf
            passed = min(made_in, turn_in)
            now += passed
            worked += passed * len(running)
            made += passed * len(running) * worker_speed
            stepped += passed * stepping
            self.clock += passed * worker_speed
            if made_in <= turn_in:
                self._made(now)
                left -= passed * step_speed
            elif stepping:
                ended[done] = now
                done += 1
            else:
                heapq.heappop(ready)
                left = self.step[taken]
                taken += 1
                self._ask()
        return Course(
            ended_s=np.array(ended),
            make_stretch=worked / made if made > 0 else 1.0,
            step_stretch=stepped / sum(self.step) if sum(self.step) > 0 else 1.0,
        )

    def _ask(self, extra_s: float = 0.0) -> None:
        """Hands the next batch to the worker whose turn it is."""
        if self.asked < len(self.make):
            queue = self.asked % len(self.waiting)
            self.waiting[queue].append(self.asked)
            self.asked += 1
            self._begin(queue, extra_s)

    def _begin(self, queue: int, extra_s: float = 0.0) -> None:
        if self.idle[queue] and self.waiting[queue]:
            self.idle[queue] -= 1
            batch = self.waiting[queue].popleft()
            heapq.heappush(self.running, (self.clock + self.make[batch] + extra_s, batch))

    def _made(self, now: float) -> None:
        _, batch = heapq.heappop(self.running)
        arrival = now + self.stage.latency_s
        # In order the queue's head is the lowest number, else the earliest arrival.
        heapq.heappush(self.ready, (batch, arrival) if self.stage.in_order else (arrival, batch))
        queue = batch % len(self.waiting)
        self.idle[queue] += 1
        self._begin(queue)
