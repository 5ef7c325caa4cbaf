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
from typing import Final

from hotloop import units
from hotloop.feed import throughput
from hotloop.feed.autosizing import PREFETCH_FACTORS
from hotloop.feed.measuring import REMEMBERED, Block, Fed, has_changed
from hotloop.feed.throughput import INLINE, BatchCost, Method, Setting

#: A change must win this share of an iteration to be kept: less is not worth a worker.
_GAIN: Final = 0.02
#: Where training waits for less than this share, more workers are not tried.
_IDLE: Final = 0.04
#: Where it waits for more than this, batches ahead are not what is missing.
_MUCH: Final = 0.25
#: A larger gain than this is believed at once.
_SURE: Final = 0.25
#: A block ends after this many batches and seconds, or the first number of batches whatever they took.
_BLOCK: Final = (12, 0.4)
_LONGEST_BLOCK: Final = 384
_WATCHED_BLOCK: Final = (64, 0.5)
_MOST_TRIED: Final = 10
_MOST_WORKERS: Final = 64
#: That are told of; a day on a busy machine makes thousands.
_MOST_DECISIONS: Final = 100
#: Batches vary so much that a short block's mean says little.
_HEAVY: Final = 0.3

#: How the real loader begins, before anything is known.
ONE_WORKER: Final = Setting("process", 1, 2)
#: Workers that are not all there after so many seconds are measured as they are.
_PATIENCE_S: Final = 10.0
#: The costs of moving a batch are not known before they are measured: this far from the best is worth a try.
_UNSURE: Final = 0.15


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
        self._cpu_share = 0.0
        self._times: list[tuple[float, float]] = []  # of batches, and over the mean of their block
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
        smaller = self.setting.within(self.memory_bytes, self.worker_bytes, self._batch_bytes)
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
        mean = max(block.fetch_s, 1e-12)
        # Where cores are fought for, wall time grows and the share shrinks: the largest seen is the truth.
        cpu_s = statistics.fmean(fed.fetch_cpu_s for fed in block.fed)
        self._cpu_share = max(self._cpu_share, min(1.0, cpu_s / mean))
        self._times = [*self._times, *((fed.fetch_s, fed.fetch_s / mean) for fed in block.fed)][-REMEMBERED:]
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
        del self.decisions[1:-_MOST_DECISIONS]
        self._block = Block(setting)

    @staticmethod
    def _num_stale(setting: Setting) -> int:
        return setting.num_ahead + setting.num_workers + 1

    def memory_of(self, setting: Setting) -> int:
        """Bytes a setting takes, see :meth:`Setting.memory_bytes`."""
        return setting.memory_bytes(self.worker_bytes, self._batch_bytes)

    # The search: a generator that asks for a setting and is sent the block measured under it.

    def _run(self, start: Setting) -> _Search:
        block = yield start, _BLOCK
        self.measured, patience = {}, 1
        while True:
            self.is_settled = False
            block = yield from self._improve(block)
            self.is_settled = True
            block, changed = yield from self._watch(block, patience)
            if changed:
                self.measured, patience, self._cpu_share = {}, 1, 0.0
            else:
                patience *= 2

    def _improve(self, best: Block) -> Generator[_Ask, Block, Block]:
        """Measure what promises more until nothing does; ends with the best setting in force."""
        self.measured[best.setting] = best
        for _ in range(_MOST_TRIED):
            chosen = self._promising(best)
            if chosen is None:
                break
            setting, reason = chosen
            self._want(setting, f"to try: {reason}")
            tried = yield setting, _BLOCK
            while self._undecided(best, tried):
                longer = yield setting, (min(2 * len(tried.fed), _LONGEST_BLOCK), _BLOCK[1])
                tried.extend(longer)
            self.measured[setting] = tried
            if self._is_better(best, tried):
                best = yield from self._made_sure(best, tried)
            else:
                self._want(best.setting, self._taken_back(best, tried))
        return best

    def _made_sure(self, best: Block, tried: Block) -> Generator[_Ask, Block, Block]:
        """The better of two. A small gain that takes more may be the machine's: the one before runs again."""
        takes_more = self.memory_of(tried.setting) > self.memory_of(best.setting)
        if not takes_more or tried.iteration_s < best.iteration_s * (1 - _SURE):
            return tried
        self._want(best.setting, "to be sure that it was slower")
        again = yield best.setting, (min(len(tried.fed), _LONGEST_BLOCK), _BLOCK[1])
        self.measured[best.setting] = again
        if not self._is_better(again, tried):
            return again
        self._want(tried.setting, "it was")
        return tried

    def _watch(self, settled: Block, patience: int) -> Generator[_Ask, Block, tuple[Block, bool]]:
        """Until the costs change, twice in a row (true), or longer measuring shows that more would help."""
        strikes, whole = 0, Block(settled.setting)
        while True:
            block = yield settled.setting, _WATCHED_BLOCK
            strikes = strikes + 1 if has_changed(settled, block) else 0
            if strikes == 2:
                self._times = self._times[-2 * len(block.fed) :]
                return block, True
            whole.extend(block)
            enough = len(whole.fed) >= _WATCHED_BLOCK[0] * patience
            if enough and not strikes and self._promising(whole) is not None:
                return whole, False

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
        now_s = min(best.iteration_s, throughput.iteration_s(cost, best.setting, self.cores))
        for setting in options:
            if setting.method != "process" and setting not in self.measured:
                predicted_s = throughput.iteration_s(cost, setting, self.cores)
                if predicted_s < now_s * (1 + _UNSURE):
                    return setting, f"{units.duration(predicted_s)} an iteration predicted, and it takes less"
        waiting = best.wait_s / best.iteration_s
        varies = cost.spread >= throughput.STEADY
        if waiting < (_GAIN if varies else _IDLE) + (self._noise(best) if self.is_settled else 0):
            return None
        reason = f"training waits {units.share(waiting)} of its time"
        near = [
            s for s in self._allowed(_neighbours(best.setting, waiting, varies)) if s not in self.measured
        ]
        return (near[0], reason) if near else None

    def _allowed(self, settings: Iterable[Setting]) -> list[Setting]:
        # So many workers keep all cores busy: more would only take turns.
        enough = math.ceil(self.cores / max(self._cpu_share, 0.01)) + 1
        return [
            s
            for s in settings
            if s.method in self.methods
            and s.num_workers <= enough
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
        times = [ratio for _, ratio in self._times]
        if self._spread > _HEAVY:  # a block's own mean is chance
            fetch_s = statistics.fmean(seconds for seconds, _ in self._times)
            times = [seconds / max(fetch_s, 1e-12) for seconds, _ in self._times]
        ready = waits[num // 10]  # where batches stood ready, this is what taking one costs
        pace = (
            block.setting.method == "process" and fetch_s / max(1, block.setting.num_workers) < 0.8 * step_s
        )
        return BatchCost(
            fetch_s=fetch_s,
            fetch_cpu_s=statistics.fmean(fed.fetch_cpu_s for fed in block.fed),
            step_s=step_s,
            step_cpu_s=statistics.median(fed.main_cpu_s for fed in block.fed),
            receive_s=ready if pace else BatchCost.receive_s,
            spread=statistics.pstdev(times) if times else 0.0,
            seen=tuple(times) if len(times) >= 4 * _BLOCK[0] else (),
        )

    @property
    def _spread(self) -> float:
        return statistics.pstdev(ratio for _, ratio in self._times) if len(self._times) > 1 else 0.0

    def _noise(self, block: Block) -> float:
        """How far off a block's iteration may be, as a share: by what was seen, and by how batches vary."""
        if self._spread <= _HEAVY:
            return block.error
        each_s = block.fetch_s / max(1, block.setting.num_workers)
        chance = self._spread * each_s / math.sqrt(len(block.fed)) / max(block.iteration_s, 1e-9)
        return max(block.error, min(1.0, chance))

    def _undecided(self, best: Block, tried: Block) -> bool:
        """Neither clearly better nor clearly not, and longer measuring may tell."""
        gain = 1 - tried.iteration_s / best.iteration_s
        noise = math.hypot(self._noise(tried), self._noise(best))
        return abs(gain - _GAIN) < noise and noise > _GAIN / 2 and len(tried.fed) < _LONGEST_BLOCK

    def _is_better(self, best: Block, tried: Block) -> bool:
        gain = 1 - tried.iteration_s / best.iteration_s
        if self._spread > _HEAVY and abs(gain) < 2 * math.hypot(self._noise(tried), self._noise(best)):
            cost = self._cost(tried)  # chance rules the measurements: compare under the same times of batches
            was = throughput.iteration_s(cost, best.setting, self.cores)
            gain = 1 - throughput.iteration_s(cost, tried.setting, self.cores) / was
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


def _neighbours(setting: Setting, waiting: float, varies: bool) -> list[Setting]:
    """More workers, by the share of time that is waited; or more ahead, which evens out what varies."""
    if setting == INLINE:
        return [Setting("process", 1, 2), Setting("thread", 1, 2)]
    more = setting._replace(num_workers=setting.num_workers + max(1, int(setting.num_workers * waiting)))
    factors = [later for now, later in pairwise(PREFETCH_FACTORS) if now == setting.prefetch_factor]
    further = [setting._replace(prefetch_factor=factor) for factor in factors]
    return [*further, more] if varies and waiting < _MUCH else [more, *further]
