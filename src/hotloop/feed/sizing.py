"""Sizes a loader while it runs: measures, predicts, tries, keeps what helped and takes back what did not.

Pure: it gets what every batch cost and answers with the setting it wants; it starts and stops nothing. A
search begins with what the closed form of ``throughput`` says of the measured costs, then tries more workers
or more ahead while training waits. Afterwards it only watches, and searches again when the costs change.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from hotloop import units
from hotloop.feed import throughput
from hotloop.feed.throughput import INLINE, PREFETCH_FACTORS, BatchCost, Method, Setting

#: Costs changed when an iteration takes this share longer.
_SLOWER: Final = 0.1


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
            sum([fed.wait_s for fed in self.fed[begin : begin + each]]) / each
            for begin in range(0, len(self.fed) - each + 1, each)
        ]
        if len(rounds) < 3:
            return 1.0
        return statistics.stdev(rounds) / math.sqrt(len(rounds)) / max(self.iteration_s, 1e-9)

    def cost(self) -> BatchCost:
        """What a batch costs, for the closed form."""
        fetch_s, step_s = self.fetch_s, self.step_s
        waits = sorted(fed.wait_s for fed in self.fed)
        # Where batches stood ready, the shortest waits are what taking one costs.
        ready = self.setting.method == "process" and fetch_s < 0.8 * step_s * self.setting.num_workers
        times = tuple(fed.fetch_s / max(fetch_s, 1e-12) for fed in self.fed)
        return BatchCost(
            fetch_s=fetch_s,
            fetch_cpu_s=statistics.fmean(fed.fetch_cpu_s for fed in self.fed),
            step_s=step_s,
            step_cpu_s=statistics.median(fed.main_cpu_s for fed in self.fed),
            receive_s=waits[len(waits) // 10] if ready else BatchCost.receive_s,
            spread=statistics.pstdev(times),
            seen=times if len(times) >= 48 else (),
        )


#: A change must win this share of an iteration: less is not worth a worker.
_GAIN: Final = 0.02
#: Where training waits for less than this share, nothing more is tried.
_IDLE: Final = 0.04
#: The costs of moving a batch are not known before they are measured: this far from the best is worth a try.
_UNSURE: Final = 0.15
#: A block ends after this many batches and seconds, or the last number of batches whatever they took; one
#: that says too little goes on.
_BATCHES, _SECONDS, _MOST_BATCHES = 12, 0.4, 384
#: Once settled.
_WATCHED: Final = (64, 0.5)
_MOST_TRIED: Final = 10
_MOST_WORKERS: Final = 64
#: Decisions that are reported; a day on a busy machine makes thousands.
_MOST_DECISIONS: Final = 100
#: How the real loader begins, before anything is known.
ONE_WORKER: Final = Setting("process", 1, 2)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """A setting that was asked for, from which batch on, and why."""

    batch: int
    setting: Setting
    reason: str


class Sizer:
    """The controller. ``methods`` are those it may choose among.

    ``cores`` and ``memory_bytes`` are this rank's. The setting wanted is :attr:`setting`; it begins with
    one worker. :attr:`most_workers` may be narrowed while it runs.
    """

    def __init__(
        self,
        *,
        cores: float,
        memory_bytes: int,
        methods: Iterable[Method] = ("inline", "process"),
    ) -> None:
        self.cores = cores
        self.memory_bytes = memory_bytes
        self.methods = set(methods)
        self.most_workers = _MOST_WORKERS
        self.worker_bytes = 200 << 20
        self.setting = ONE_WORKER
        self.decisions = [Decision(batch=0, setting=ONE_WORKER, reason="to begin with")]
        self.measured: dict[Setting, Block] = {}
        self.num_batches = 0
        self.is_settled = False  # nothing is being tried
        self._batch_bytes = 0
        self._cpu_share = 0.0
        self._strikes = 0
        self._block = Block(ONE_WORKER)
        self._to_skip = self._num_stale(ONE_WORKER)

    def observe(self, fed: Fed) -> Setting:
        """Take in what one batch cost; the setting wanted from now on (mostly the one there is)."""
        self.num_batches += 1
        # Not while workers start, nor while batches made under another setting still come.
        if fed.method != self.setting.method or fed.num_workers != self.setting.num_workers:
            return self.setting
        if self._to_skip:
            self._to_skip -= 1
            return self.setting
        self._block.add(fed)
        least, seconds = _WATCHED if self.is_settled else (_BATCHES, _SECONDS)
        num = len(self._block.fed)
        if num >= least and (self._block.seconds >= seconds or num >= _MOST_BATCHES):
            self._judge()
        return self.setting

    def begin_epoch(self) -> None:
        """The pipeline is empty again: what comes first is no measure of the rest."""
        self._to_skip = self._num_stale(self.setting)

    def limit(self, num_workers: int, reason: str) -> Setting:
        """No more processes than these can be had."""
        self.most_workers = num_workers
        smaller = self.setting._replace(num_workers=num_workers) if num_workers else INLINE
        if smaller != self.setting:
            self.measured, self.is_settled = {}, False
            self._want(smaller, reason)
        return self.setting

    def _memory(self, setting: Setting) -> int:
        return setting.memory_bytes(self.worker_bytes, self._batch_bytes)

    def _want(self, setting: Setting, reason: str) -> None:
        if setting != self.setting:
            # What is under way or waiting was made under the setting before.
            self._to_skip = max(self._num_stale(setting), self.setting.num_ahead)
            self.setting = setting
            self.decisions.append(Decision(batch=self.num_batches, setting=setting, reason=reason))
            del self.decisions[1:-_MOST_DECISIONS]
        self._block = Block(setting)

    @staticmethod
    def _num_stale(setting: Setting) -> int:
        return setting.num_ahead + setting.num_workers + 1

    def _judge(self) -> None:
        """A block is measured: watch on, measure longer, try another setting, or settle on the best."""
        block = self._block
        self._batch_bytes = max(fed.num_bytes for fed in block.fed)
        if self.is_settled:
            before = self.measured[self.setting]
            slower = block.iteration_s / max(before.iteration_s, 1e-9) - 1
            changed = slower > _SLOWER + 2 * math.hypot(before.error, block.error)
            self._strikes = self._strikes + 1 if changed else 0
            if self._strikes < 2:
                self._block = Block(self.setting)
                return
            self.measured, self.is_settled, self._cpu_share = {}, False, 0.0
        if block.error > _GAIN and len(block.fed) < _MOST_BATCHES and self._is_close(block):
            return  # measured longer
        # Where cores are fought for, wall time grows and the share shrinks: the largest seen is the truth.
        cost = block.cost()
        self._cpu_share = max(self._cpu_share, min(1.0, cost.fetch_cpu_s / max(cost.fetch_s, 1e-12)))
        self.measured[self.setting] = block
        best = self._best()
        chosen = self._promising(best) if len(self.measured) <= _MOST_TRIED else None
        if chosen is not None:
            self._want(chosen[0], f"to try: {chosen[1]}")
            return
        self.is_settled, self._strikes = True, 0
        was, now = units.duration(block.iteration_s), units.duration(best.iteration_s)
        self._want(best.setting, f"{block.setting} took {was} an iteration, {best.setting} {now}")

    def _is_close(self, block: Block) -> bool:
        """Whether measuring longer may tell if this is the best."""
        others = [other for setting, other in self.measured.items() if setting != block.setting]
        fastest = min((other.iteration_s for other in others), default=block.iteration_s)
        return abs(block.iteration_s / fastest - 1) < _GAIN + 2 * block.error

    def _best(self) -> Block:
        """The measured setting that takes least within the gain of the fastest."""
        fastest = min(block.iteration_s for block in self.measured.values())
        near = [block for block in self.measured.values() if block.iteration_s <= fastest * (1 + _GAIN)]
        return min(near, key=lambda block: (self._memory(block.setting), block.iteration_s))

    def _promising(self, best: Block) -> tuple[Setting, str] | None:
        """The next setting to measure, and why: the closed form's choice first, then neighbours."""
        cost = best.cost()
        now_s = throughput.iteration_s(cost, best.setting, self.cores)
        wanted = throughput.process_settings(cost, most=max(1, self.most_workers))
        options = [one for one in self._allowed([INLINE, *wanted]) if one not in self.measured]
        if options:
            chosen, predicted_s = throughput.best(cost, self.cores, options)
            less = self._memory(chosen) < self._memory(best.setting)
            if predicted_s < best.iteration_s * (1 + _GAIN / 2 if less else 1 - _GAIN):
                return chosen, f"{units.duration(predicted_s)} an iteration predicted"
        predicted_s = throughput.iteration_s(cost, INLINE, self.cores)
        if INLINE in options and predicted_s < min(best.iteration_s, now_s) * (1 + _UNSURE):
            return INLINE, f"{units.duration(predicted_s)} an iteration predicted, and it takes less"
        waiting = best.wait_s / best.iteration_s
        if waiting < _IDLE or best.setting == INLINE:
            return None
        now = best.setting
        more = now._replace(num_workers=now.num_workers + max(1, int(now.num_workers * waiting)))
        further = [now._replace(prefetch_factor=f) for f in PREFETCH_FACTORS if f > now.prefetch_factor][:1]
        near = [one for one in self._allowed([more, *further]) if one not in self.measured]
        return (near[0], f"training waits {units.share(waiting)} of its time") if near else None

    def _allowed(self, settings: Iterable[Setting]) -> list[Setting]:
        # So many workers keep all cores busy: more would only take turns.
        enough = min(self.most_workers, math.ceil(self.cores / max(self._cpu_share, 0.01)) + 1)
        return [
            s
            for s in settings
            if s.method in self.methods
            and s.num_workers <= enough
            and (self._memory(s) <= self.memory_bytes or s == INLINE)
        ]

    def __str__(self) -> str:
        lines = [f"feeding with {self.setting} (of {self.num_batches} batches seen)"]
        for setting, block in sorted(self.measured.items(), key=lambda pair: pair[1].iteration_s):
            lines.append(
                f"  {setting!s:<28} {units.duration(block.iteration_s):>9} an iteration"
                f" (+-{units.share(block.error)}), waiting {units.share(block.wait_s / block.iteration_s)}"
            )
        lines += [f"  from batch {d.batch}: {d.setting}: {d.reason}" for d in self.decisions]
        return "\n".join(lines)
