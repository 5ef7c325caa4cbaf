"""Sizes a loader while it runs: measures, predicts, tries, keeps what helped and takes back what did not.

Pure: it is told what every batch cost and answers with the setting it wants; it starts and stops nothing.
A search begins with what the closed form of ``throughput`` says of the measured costs, then tries the
neighbours of the best setting so far. Afterwards it only watches, and searches again when the costs change.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from hotloop import units
from hotloop.feed import throughput
from hotloop.feed.autosizing import PREFETCH_FACTORS
from hotloop.feed.throughput import INLINE, BatchCost, Method, Setting

#: A change must win this share of an iteration to be kept: less is not worth a worker.
_GAIN: Final = 0.02
#: Where training waits for less than this share, more workers are not tried.
_IDLE: Final = 0.04
#: A block ends after this many batches and seconds, or the first number of batches whatever they took.
_BLOCK: Final = (12, 0.25)
_LONGEST_BLOCK: Final = 384
_WATCHED_BLOCK: Final = (64, 0.5)
#: Costs changed when a batch takes this many times more or less, or an iteration this share longer.
_COSTS_CHANGED: Final = 1.5
_SLOWER: Final = 0.1
_MOST_TRIED: Final = 10
_MOST_WORKERS: Final = 64
_REMEMBERED: Final = 512

#: How the real loader begins, before anything is known.
ONE_WORKER: Final = Setting("process", 1, 2)
#: Workers that are not all there after so many seconds are measured as they are.
_PATIENCE_S: Final = 10.0
#: The costs of moving a batch are not known before they are measured: this far from the best is worth a try.
_UNSURE: Final = 0.15


class Fed(NamedTuple):
    """One batch as the training thread met it. Seconds."""

    wait_s: float  # from asking for the batch to having it
    step_s: float  # from having the batch before to asking for this one
    fetch_s: float  # wall time of whoever made it
    fetch_cpu_s: float
    num_bytes: int
    method: Method  # how it was made
    num_workers: int  # that are at work: started, not retired
    main_cpu_s: float = 0.0  # CPU time of the training process during ``step_s``


class Block:
    """Batches under one setting."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.fed: list[Fed] = []
        self.seconds = 0.0

    def add(self, fed: Fed) -> None:
        """Take one more in."""
        self.fed.append(fed)
        self.seconds += fed.wait_s + fed.step_s

    @property
    def wait_s(self) -> float:
        """Mean seconds the training thread waited."""
        return statistics.fmean(fed.wait_s for fed in self.fed)

    @property
    def step_s(self) -> float:
        """Median seconds between batches: a checkpoint or an evaluation in between is not the step."""
        return statistics.median(fed.step_s for fed in self.fed)

    @property
    def iteration_s(self) -> float:
        """Seconds from batch to batch."""
        return self.wait_s + self.step_s

    @property
    def fetch_s(self) -> float:
        """Mean seconds to make a batch."""
        return statistics.fmean(fed.fetch_s for fed in self.fed)

    @property
    def error(self) -> float:
        """Standard error of :attr:`iteration_s`, as a share of it; batches of one round count as one."""
        each = max(1, self.setting.num_workers)
        rounds = [
            statistics.fmean(fed.wait_s for fed in self.fed[begin : begin + each])
            for begin in range(0, len(self.fed) - each + 1, each)
        ]
        if len(rounds) < 3:
            return 1.0
        return statistics.stdev(rounds) / math.sqrt(len(rounds)) / max(self.iteration_s, 1e-9)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """A setting that was asked for, from which batch on, and why."""

    batch: int
    setting: Setting
    reason: str


#: What the search asks next: this setting, measured over at least so many batches and seconds.
_Ask = tuple[Setting, tuple[int, float]]
_Search = Generator[_Ask, Block, None]


class Sizer:
    """The controller. ``methods`` are those it may choose among: threads where the interpreter is left free.

    ``cores`` and ``memory_bytes`` are this rank's. The setting wanted is :attr:`setting`; it begins with
    ``start``. :attr:`methods` and :attr:`most_workers` (processes) may be narrowed while it runs.
    """

    def __init__(
        self,
        *,
        cores: float,
        memory_bytes: int,
        start: Setting = ONE_WORKER,
        methods: Iterable[Method] = ("inline", "process"),
        worker_bytes: int = 200 << 20,
    ) -> None:
        self.cores = cores
        self.memory_bytes = memory_bytes
        self.methods = set(methods)
        self.most_workers = _MOST_WORKERS
        self.worker_bytes = worker_bytes
        self.setting = start
        self.decisions = [Decision(batch=0, setting=start, reason="to begin with")]
        self.measured: dict[Setting, Block] = {}
        self.num_batches = 0
        self.is_settled = False  # nothing is being tried
        self._batch_bytes = 0
        self._seen: list[float] = []
        self._search = self._run(start)
        self._ask = next(self._search)
        self._block = Block(start)
        self._to_skip = self._num_stale(start)
        self._patience_s = _PATIENCE_S

    def observe(self, fed: Fed) -> Setting:
        """Take in what one batch cost; the setting wanted from now on (mostly the one there is)."""
        self.num_batches += 1
        if not self._is_there(fed):
            return self.setting
        if self._to_skip:
            self._to_skip -= 1
            return self.setting
        self._block.add(fed)
        least, seconds = self._ask[1]
        if len(self._block.fed) >= least and (
            self._block.seconds >= seconds or len(self._block.fed) >= _LONGEST_BLOCK * 4
        ):
            self._finish_block()
        return self.setting

    def _is_there(self, fed: Fed) -> bool:
        """Not while workers start, nor while batches made under another setting still come."""
        if fed.method == self.setting.method and fed.num_workers == self.setting.num_workers:
            return True
        self._patience_s -= fed.wait_s + fed.step_s
        return self._patience_s < 0 and fed.method == self.setting.method

    def begin_epoch(self) -> None:
        """The pipeline is empty again: what comes first is no measure of the rest."""
        self._to_skip = self._num_stale(self.setting)

    def relieve(self, shortage_bytes: int, reason: str) -> Setting:
        """Give back memory: batches ahead first, then workers. Does not take it again while this runs."""
        self.memory_bytes = max(0, min(self.memory_bytes, self.memory_of(self.setting)) - shortage_bytes)
        smaller = self.setting
        while smaller.num_ahead > 1 and self.memory_of(smaller) > self.memory_bytes:
            if smaller.prefetch_factor > 1:
                smaller = smaller._replace(prefetch_factor=smaller.prefetch_factor - 1)
            else:
                smaller = smaller._replace(num_workers=smaller.num_workers - 1)
        self._restart(smaller, f"memory is short: {reason}")
        return self.setting

    def forbid(self, method: Method, reason: str) -> Setting:
        """Never choose a method again; where it is in force, something else is wanted from now on."""
        self.methods.discard(method)
        if self.setting.method == method:
            known = [s for s in self.measured if s.method in self.methods]
            others = sorted(known, key=lambda s: self.measured[s].iteration_s)
            fallback = Setting("thread", 1, 2) if "thread" in self.methods else INLINE
            self._restart(others[0] if others else fallback, reason)
        return self.setting

    def limit(self, num_workers: int, reason: str) -> Setting:
        """No more processes than these can be had."""
        self.most_workers = num_workers
        smaller = self.setting._replace(num_workers=num_workers) if num_workers else INLINE
        self._restart(smaller, reason)
        return self.setting

    def _restart(self, setting: Setting, reason: str) -> None:
        if setting != self.setting:
            self._want(setting, reason)
            self._search = self._run(setting)
            self._ask = next(self._search)

    def _finish_block(self) -> None:
        block = self._block
        self._batch_bytes = max(fed.num_bytes for fed in block.fed)
        mean = block.fetch_s
        self._seen = [*self._seen, *(fed.fetch_s / max(mean, 1e-12) for fed in block.fed)][-_REMEMBERED:]
        self._ask = self._search.send(block)
        self._block = Block(self.setting)

    def _want(self, setting: Setting, reason: str) -> None:
        if setting == self.setting:
            return
        # What is under way or waiting was made under the setting before.
        self._to_skip = max(self._num_stale(setting), self.setting.num_ahead)
        self._patience_s = _PATIENCE_S
        self.setting = setting
        self.decisions.append(Decision(batch=self.num_batches, setting=setting, reason=reason))
        self._block = Block(setting)

    @staticmethod
    def _num_stale(setting: Setting) -> int:
        return setting.num_ahead + setting.num_workers + 1

    def memory_of(self, setting: Setting) -> int:
        """Bytes a setting takes: its processes, the batches ahead, the one in use."""
        processes = setting.num_workers if setting.method == "process" else 0
        return processes * self.worker_bytes + (setting.num_ahead + 1) * self._batch_bytes

    # The search: a generator that asks for a setting and is sent the block measured under it.

    def _run(self, start: Setting) -> _Search:
        block = yield start, _BLOCK
        while True:
            self.is_settled = False
            block = yield from self._improve(block)
            self.is_settled = True
            block = yield from self._watch(block)

    def _improve(self, block: Block) -> Generator[_Ask, Block, Block]:
        """Measure what promises more until nothing does; ends with the best setting in force."""
        self.measured = {block.setting: block}
        best = block
        while len(self.measured) < _MOST_TRIED:
            chosen = self._promising(best)
            if chosen is None:
                break
            setting, reason = chosen
            self._want(setting, f"to try: {reason}")
            tried = yield setting, _BLOCK
            while self._undecided(best, tried):
                longer = yield setting, (min(2 * len(tried.fed), _LONGEST_BLOCK), _BLOCK[1])
                longer.fed[:0] = tried.fed
                tried = longer
            self.measured[setting] = tried
            if self._is_better(best, tried):
                best = tried
            else:
                self._want(best.setting, self._taken_back(best, tried))
        return best

    def _watch(self, settled: Block) -> Generator[_Ask, Block, Block]:
        """Nothing to do until the costs change, twice in a row."""
        strikes = 0
        while True:
            block = yield settled.setting, _WATCHED_BLOCK
            strikes = strikes + 1 if _changed(settled, block) else 0
            if strikes == 2:
                self._seen = self._seen[-2 * len(block.fed) :]
                return block

    def _promising(self, best: Block) -> tuple[Setting, str] | None:
        """The next setting to measure, and why: the closed form's choice first, then neighbours."""
        cost = self._cost(best)
        options = self._candidates(cost)
        if not options:
            return None
        chosen, predicted_s = throughput.best(cost, self.cores, options)
        less = self.memory_of(chosen) < self.memory_of(best.setting)
        worth = predicted_s < best.iteration_s * (1 - (0 if less else _GAIN))
        if chosen not in self.measured and worth:
            return chosen, f"{units.duration(predicted_s)} an iteration predicted"
        for setting in options:
            if setting.method != "process" and setting not in self.measured:
                predicted_s = throughput.iteration_s(cost, setting, self.cores)
                if predicted_s < best.iteration_s * (1 + _UNSURE):
                    return setting, f"{units.duration(predicted_s)} an iteration predicted, and it takes less"
        waiting = best.wait_s / best.iteration_s
        varies = cost.spread >= throughput.STEADY
        if waiting < (_GAIN if varies else _IDLE):
            return None
        reason = f"training waits {units.share(waiting)} of its time"
        near = [s for s in self._allowed(_neighbours(best.setting, varies)) if s not in self.measured]
        return (near[0], reason) if near else None

    def _allowed(self, settings: Iterable[Setting]) -> list[Setting]:
        return [
            s
            for s in settings
            if s.method in self.methods
            and (s.method != "process" or s.num_workers <= self.most_workers)
            and (self.memory_of(s) <= self.memory_bytes or s == INLINE)
        ]

    def _candidates(self, cost: BatchCost) -> list[Setting]:
        threads = [Setting("thread", n, 2) for n in range(1, max(1, int(self.cores)) + 1)]
        most = max(1, self.most_workers)
        processes = throughput.process_settings(cost, most=most, prefetch_factors=PREFETCH_FACTORS)
        return self._allowed([INLINE, *threads, *processes])

    def _cost(self, block: Block) -> BatchCost:
        num = len(block.fed)
        waits = sorted(fed.wait_s for fed in block.fed)
        fetch_s, step_s = block.fetch_s, block.step_s
        ready = waits[num // 10]  # where batches stood ready, this is what taking one costs
        pace = (
            block.setting.method == "process" and fetch_s / max(1, block.setting.num_workers) < 0.8 * step_s
        )
        mean = statistics.fmean(self._seen) if self._seen else 1.0
        return BatchCost(
            fetch_s=fetch_s,
            fetch_cpu_s=statistics.fmean(fed.fetch_cpu_s for fed in block.fed),
            step_s=step_s,
            step_cpu_s=statistics.median(fed.main_cpu_s for fed in block.fed),
            receive_s=ready if pace else BatchCost.receive_s,
            spread=statistics.pstdev(self._seen) / mean if self._seen else 0.0,
            seen=tuple(self._seen) if len(self._seen) >= 4 * _BLOCK[0] else (),
        )

    def _undecided(self, best: Block, tried: Block) -> bool:
        """Neither clearly better nor clearly not, and longer measuring may tell."""
        gain = 1 - tried.iteration_s / best.iteration_s
        noise = math.hypot(tried.error, best.error)
        return abs(gain - _GAIN) < 2 * noise and noise > _GAIN / 2 and len(tried.fed) < _LONGEST_BLOCK

    def _is_better(self, best: Block, tried: Block) -> bool:
        gain = 1 - tried.iteration_s / best.iteration_s
        if self.memory_of(tried.setting) < self.memory_of(best.setting):
            return gain > -_GAIN / 2  # takes less: as good is better
        return gain > _GAIN

    @staticmethod
    def _taken_back(best: Block, tried: Block) -> str:
        was, now = units.duration(best.iteration_s), units.duration(tried.iteration_s)
        return f"{tried.setting} took {now} an iteration, {best.setting} {was}"

    def __str__(self) -> str:
        lines = [f"feeding with {self.setting} (of {self.num_batches} batches seen)"]
        for setting, block in sorted(self.measured.items(), key=lambda pair: pair[1].iteration_s):
            lines.append(
                f"  {setting!s:<28} {units.duration(block.iteration_s):>9} an iteration"
                f" (+-{units.share(block.error)}), waiting {units.share(block.wait_s / block.iteration_s)}"
            )
        lines += [f"  from batch {d.batch}: {d.setting}: {d.reason}" for d in self.decisions]
        return "\n".join(lines)


def _neighbours(setting: Setting, varies: bool) -> list[Setting]:
    """A little more: of workers and of batches ahead; these first where the times of batches vary."""
    if setting == INLINE:
        return [Setting("process", 1, 2), Setting("thread", 1, 2)]
    more = setting._replace(num_workers=setting.num_workers + max(1, setting.num_workers // 4))
    factors = [later for now, later in pairwise(PREFETCH_FACTORS) if now == setting.prefetch_factor]
    further = [setting._replace(prefetch_factor=factor) for factor in factors]
    return [*further, more] if varies else [more, *further]


def _changed(settled: Block, block: Block) -> bool:
    """Whether batches cost clearly more or less than when the setting was chosen."""
    ratio = block.fetch_s / max(settled.fetch_s, 1e-9)
    noise = 3 * math.hypot(_fetch_error(settled), _fetch_error(block))
    if not 1 / _COSTS_CHANGED <= ratio <= _COSTS_CHANGED and abs(math.log(max(ratio, 1e-9))) > noise:
        return True
    slower = block.iteration_s / max(settled.iteration_s, 1e-9) - 1
    return slower > _SLOWER + 2 * math.hypot(settled.error, block.error)


def _fetch_error(block: Block) -> float:
    values = [fed.fetch_s for fed in block.fed]
    return statistics.pstdev(values) / math.sqrt(len(values)) / max(block.fetch_s, 1e-9)
