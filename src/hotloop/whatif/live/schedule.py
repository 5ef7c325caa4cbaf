"""Which block comes next, how long it is, and when enough is known."""

from __future__ import annotations

import time
from math import ceil, gcd, log
from statistics import fmean
from typing import Any

from hotloop.probe.probe import Probe
from hotloop.stats import half_width
from hotloop.whatif.live.arms import Arm, FreeData, workers_cpu_s
from hotloop.whatif.live.blocks import (
    LEAD,
    LEAST_PAIRS,
    LEAST_S,
    LEAST_STEPS,
    MOST_STEPS,
    PILOT,
    Block,
    Board,
    log_ratios,
)
from hotloop.whatif.live.feeder import Feeder


class Schedule:
    """Decides blocks; the leading rank writes them to the board, the others read them there."""

    def __init__(self, probe: Probe, plan: dict[str, Any], feeder: Feeder) -> None:
        self._probe, self._plan = probe, plan
        self._feeder = feeder
        self._arms: list[Arm] = [Arm()]
        self._leads = False
        self._step = -1  # boundaries so far, once the driving loop is known
        self._epoch, self._since = 0, -1  # boundaries of an epoch, 0 unknown; since one began, -1 unknown
        self._short = False  # epochs are too short for a block: blocks hold several, and their starts count
        self._pilot: list[int] = []
        self._span = (0, 0)  # nanoseconds and boundaries of the pilot, with what no block will time
        self._block: Block | None = None
        self._next: Block | None = None
        self._board = Board(plan["board"])
        self._order: list[int] = []  # the arms still to come in this cycle
        self._length = LEAST_STEPS
        self._begun_s = float(plan.get("begun_s") or 0.0)  # of the command, where that is in the budget
        self._startup_s = 0.0
        self._budget_s = float(plan["budget_s"])
        self._done: list[Block] = []
        self._updates = self._rounds = 0
        self._by_update = False
        self._cpu: tuple[float, dict[int, float], int] | None = None

    def _open_arms(self) -> list[int]:
        return [i for i, arm in enumerate(self._arms) if i and not arm.refused]

    def _in_pilot(self, iterator: Any) -> None:
        if self._next is not None or self._board.stop_at is not None:
            return
        if not self._leads:
            self._next = self._board.read(0)
            return
        timed = self._pilot[2:]
        if len(timed) < PILOT or (self._span[0] < 0.5e9 and len(timed) < 2 * MOST_STEPS):
            return
        self._length = self._block_length(fmean(timed) / 1e9, iterator)
        now_s = time.monotonic()
        self._begun_s = self._begun_s or now_s
        self._startup_s = now_s - self._begun_s
        # A start that takes all of the budget would leave a person who waited without an answer.
        self._budget_s = max(self._budget_s, self._startup_s + self._budget_s / 2)
        self._announce(self._decide(0, self._step + LEAD, iterator))

    def _block_length(self, step_s: float, iterator: Any) -> int:
        """``max(6, 3 W)`` steps and 0.3 s; whole updates; no more than may be held."""
        workers = int(getattr(iterator, "_num_workers", 0))
        wanted = max(LEAST_STEPS, 3 * workers, ceil(LEAST_S / max(step_s, 1e-6)))
        group = max(1, round((self._step - 1) / max(1, self._updates)))
        epoch = self._epoch_length() if iterator is not None else 0
        self._short = 0 < epoch < 2 * LEAST_STEPS + 8
        if self._short:
            for arm in self._arms:
                arm.whole_epochs()
            whole = epoch * (group // gcd(group, epoch - 1))
            wanted = max(LEAST_STEPS, 3 * workers, ceil(LEAST_S * 1e9 * self._span[1] / self._span[0]))
            return whole * ceil(wanted / whole)
        if epoch:
            wanted = min(wanted, max(LEAST_STEPS, (epoch - 7) // 2))
        if self._feeder.most:
            wanted = min(wanted, self._feeder.most)
        return group * ceil(min(wanted, MOST_STEPS) / group)

    def _epoch_length(self) -> int:
        """Boundaries of an epoch as it was seen, else as the loader has it, 0 unknown."""
        try:
            return self._epoch or len(self._feeder.loader()) + 1
        except (TypeError, StopIteration, NotImplementedError):
            return 0

    def _decide(self, number: int, at: int, iterator: Any) -> Block:
        """The next block: each cycle has the baseline and every arm still open, every second one reversed."""
        cycle_arms = [0, *(i for i in self._open_arms() if not self._settled(i))]
        last = self._next or self._block
        cycle, order = (last.cycle, self._order) if last is not None else (-1, [])
        if not order:
            cycle += 1
            order = cycle_arms if cycle % 2 == 0 else cycle_arms[::-1]
        arm, self._order = order[0], order[1:]
        before = self._arms[last.arm] if last is not None else self._arms[0]
        warm = max(self._arms[arm].settle(iterator), before.settle(iterator))
        block = Block(number=number, at=at, arm=arm, warm=warm, length=self._length, cycle=cycle)
        if self._stays(last, block):
            block.warm = 0
        return block

    def _settled(self, arm: int) -> bool:
        """Whether an arm's interval is narrow enough."""
        ratios = log_ratios(self._done, arm)
        return len(ratios) >= LEAST_PAIRS and half_width(ratios) <= log(1 + self._plan["width"])

    def _finished(self) -> bool:
        spent_s = time.monotonic() - self._begun_s
        return spent_s > self._budget_s or all(map(self._settled, self._open_arms()))

    def _stays(self, before: Block | None, after: Block | None) -> bool:
        """Whether two blocks that follow each other are one switch: a burst is taken anew for each."""
        same = before is not None and after is not None and before.arm == after.arm
        return same and not isinstance(self._arms[before.arm], FreeData)  # type: ignore[union-attr]

    def _announce(self, block: Block) -> None:
        self._next = block
        pairs = {self._arms[i].name: len(log_ratios(self._done, i)) for i in self._open_arms()}
        self._board.write(block, spent_s=time.monotonic() - self._begun_s, pairs=pairs)

    def _count_cpu(self, block: Block, iterator: Any) -> None:
        # Steps left out of the block would count in its time on the cores and not in its seconds.
        if self._cpu is None or block.dropped:
            return
        begun_s, before, step = self._cpu
        after = workers_cpu_s(iterator)
        if before.keys() == after.keys():  # of others that came and went nobody knows what they took
            block.cpu_s = time.process_time() - begun_s + sum(after.values()) - sum(before.values())
            block.cpu_steps = len(block.step_ns) if self._short else self._step - step

    def _note(self, block: Block) -> None:
        self._probe.note(
            "block",
            name=self._arms[block.arm].name,
            cycle=block.cycle,
            first_step=block.at,
            last_step=self._step - 1,
            steps=len(block.step_ns),
            valid=block.valid,
            mean_s=fmean(block.step_ns) / 1e9 if block.step_ns else None,
            wait_s=fmean(block.wait_ns) / 1e9 if block.wait_ns and not self._by_update else None,
            cpu_s=block.cpu_s / block.cpu_steps if block.cpu_steps else None,
            starts=block.starts,
            epoch=self._epoch - 1 if self._epoch else None,
            startup_s=self._startup_s,
            leads=self._leads,
            fill=block.facts,
        )

    def _edge(self, iterator: Any) -> None:
        """Where the timed part of a block begins, CPU seconds are taken."""
        block = self._block
        if block is not None and self._step == block.at + block.warm:
            self._cpu = (time.process_time(), workers_cpu_s(iterator), self._step)

    def _count_epoch(self, *, first: bool) -> None:
        if self._since >= 0:
            self._since += 1
        if first:
            self._epoch, self._since = max(self._epoch, self._since), 0
