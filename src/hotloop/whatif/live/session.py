"""The blocks of a what-if run: which intervention is in force when, and how long its steps take.

A boundary is where the driving loop asks for its next batch (or, without a DataLoader, where an update ends).
First a pilot without any intervention says how long a step is; then blocks follow each other, each a fixed
number of steps, so that all ranks switch at the same one. The leading rank decides each block one block ahead
and writes it to the board, a file that the other ranks read. Only its times count.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from hotloop.clock import now_ns
from hotloop.probe.probe import Probe
from hotloop.whatif.live.arms import FreeData, build
from hotloop.whatif.live.blocks import (
    WARM_UP,
    Block,
    log_ratios,
)
from hotloop.whatif.live.feeder import Feeder
from hotloop.whatif.live.schedule import Schedule

_NAME: Final = "what-if"
#: Updates without a batch of the driving loader after which it is over.
_MOST_WITHOUT: Final = 50
#: Boundaries of an epoch of which no step is left out.
_FEW: Final = 3
_LOST: Final = f"{_MOST_WITHOUT} updates went by without a batch of the DataLoader that drove the loop"


class Session(Schedule):
    """Counts boundaries, switches arms, times steps."""

    def __init__(self, probe: Probe, plan: dict[str, Any]) -> None:
        super().__init__(probe, plan, Feeder(probe, self._boundary))
        self._over = self._child = False
        self._started = 0  # when the running step began, 0: not to be timed
        self._seen: tuple[int, ...] = (0,) * 8
        self._saves = 0
        self._cold = False  # workers were forked for the running step: it writes their parent's pages anew
        self._start: tuple[Block, int] | None = None  # an epoch that starts in a block, and its wait so far
        self._others: deque[int] = deque(maxlen=16)  # fetches of other loaders, of the last steps
        self._fetches = self._without = 0  # of the driving loader; updates since
        self._lost: list[int] = []  # arms that were to be measured yet when it went

    def install(self) -> None:
        """Watch for the loop that trains."""
        self._feeder.install()
        probe = self._probe
        self._arms += build(probe, self._feeder, self._plan["interventions"])
        probe.on_update(_NAME, self._update)
        torch = probe.torch
        probe.hooks.around(
            torch, "save", _NAME, self._saving, lambda *_: None, also=(torch.serialization,), any_thread=True
        )
        probe.on_exit(_NAME, self._exit)
        probe.on_fork(_NAME, self._forked)

    def _forked(self) -> None:
        self._over = self._child = True  # siblings are the parent's to end

    def _exit(self) -> None:
        if not self._child:
            self._leave()
            self._feeder.close()

    def _saving(self, *_: Any) -> None:
        self._saves += 1

    # -- finding the loop ------------------------------------------------------------------------------------

    def _update(self) -> None:
        if self._over or self._rounds == self._probe.count.turns:  # another optimizer of the same round
            return
        self._rounds = self._probe.count.turns
        self._updates += 1
        if self._step >= 0:
            if self._by_update:
                self._boundary(None)
            else:
                self._guarded(self._watch, self._feeder.last())
            return
        if self._updates < WARM_UP:
            return
        iterator = self._feeder.last()
        self._leads = self._board.take_lead()
        if iterator is not None:
            self._feeder.drives = self._probe.loaders.loader_of(iterator)
        self._by_update = not self._feeder.drives
        self._step = 0
        self._updates = 0

    def _watch(self, _: Any) -> None:
        """After an update: is it still the driving loader that feeds them?"""
        feeder = self._feeder
        self._without = self._without + 1 if feeder.fetches == self._fetches else 0
        self._fetches = feeder.fetches
        if self._without >= _MOST_WITHOUT:
            self._lost = [i for i in self._open_arms() if len(log_ratios(self._done, i)) < 2]
            self._stop(None)
            feeder.give_up()

    # -- boundaries ------------------------------------------------------------------------------------------

    def _boundary(self, iterator: Any) -> None:
        if not self._over:
            self._guarded(self._between, iterator)

    def _guarded(self, function: Callable[[Any], None], iterator: Any) -> None:
        try:
            function(iterator)
        except Exception as error:
            self._over = True
            with contextlib.suppress(Exception):
                self._switch_off(iterator)
            self._end()
            self._probe.hooks.failed(self._probe.hooks.switch(_NAME + " blocks"), error)

    def _between(self, iterator: Any) -> None:
        self._catch_up()
        self._finish_step(now_ns(), iterator)
        self._step += 1
        if self._block is None:
            self._in_pilot(iterator)
        elif self._step >= self._block.end:
            self._finish_block(iterator)
        if self._next is not None and self._step >= self._next.at:
            self._begin_block(self._next, iterator)
        if self._board.stop_at is not None and self._step >= self._board.stop_at:
            self._stop(iterator)
        elif (block := self._block) is not None and self._step < block.end:
            block.facts += self._arms[block.arm].keep(iterator, block.end - self._step)
        self._edge(iterator)
        self._seen = self._counts()
        self._started = now_ns()

    def _counts(self) -> tuple[int, ...]:
        one, count = self._feeder, self._probe.count
        more = one.wait_ns, one.gap_ns, one.missed, one.served
        return one.others, one.ended, self._saves, count.backwards + count.rounds, *more

    def _finish_step(self, now: int, iterator: Any) -> None:
        others, ended, saves, trained, wait_ns, gap_ns, missed, served = (
            after - before for after, before in zip(self._counts(), self._seen, strict=True)
        )
        first = iterator is not None and not iterator._num_yielded
        self._count_epoch(first=first)
        forked = first and bool(getattr(iterator, "_workers", ())) and not iterator._persistent_workers
        cold, self._cold = self._cold, forked and self._epoch > _FEW
        if self._started == 0:
            return
        new_epoch = first or ended > 0
        evaluated = self._evaluated(others)
        interrupted = evaluated or saves > 0 or (new_epoch and not self._short)
        if self._block is None:
            self._span = (self._span[0] + now - self._started, self._span[1] + 1)
            if not interrupted:
                self._pilot.append(now - self._started)
            return
        block = self._block
        if not self._short:  # what the start of an epoch waits for is no part of the block's steps
            if self._start is not None and self._start[0] is block:
                block.starts.append((self._start[1] + wait_ns) / 1e9)
            self._start = (block, wait_ns) if first else None
        if new_epoch and not self._short:  # the first batches of an epoch tell nothing
            block.skip = max(block.skip, 1 + self._arms[block.arm].settle(iterator))
        free = isinstance(self._arms[block.arm], FreeData)
        free_ns = gap_ns if free else 0
        in_force = not self._arms[block.arm].refused and not (missed if free else served)
        if block.skip > 0:
            block.skip -= 1
        elif interrupted or not in_force or (cold and free):
            block.dropped += 1
            if ended and in_force:  # e.g. an evaluation between two epochs: the input's part is still theirs
                block.add(wait_ns - free_ns, wait_ns - free_ns, whole=False)
        else:
            # From the end of one epoch to the start of the next no batch is asked for, or one that the loop
            # leaves at once: part of the last step.
            whole = not ended and not (first and not trained)
            block.add(now - self._started - free_ns, wait_ns - free_ns, whole=whole)

    def _evaluated(self, others: int) -> bool:
        """Whether a step held more fetches of other loaders than steps usually do; some loops use several."""
        usual = sorted(self._others)
        self._others.append(others)
        return others > (usual[len(usual) * 3 // 4] if usual else 0)

    def _catch_up(self) -> None:
        """Where the timed part of a block begins or ends, the device ends what it was given."""
        block, cuda = self._block, self._probe.torch.cuda
        if (
            block is not None
            and self._step + 1 in (block.at + block.warm, block.end)
            and cuda.is_initialized()
        ):
            cuda.synchronize()

    # -- blocks ----------------------------------------------------------------------------------------------

    def _begin_block(self, block: Block, iterator: Any) -> None:
        self._next = None
        block.skip = block.warm
        stays, self._block = self._stays(self._block, block), block
        arm = self._arms[block.arm]
        if not arm.refused and not stays:
            arm.on(iterator, block.warm + block.length)
        if not self._leads:
            return
        if self._finished():
            self._board.stop(block.number + 1, block.end)
        else:
            self._announce(self._decide(block.number + 1, block.end, iterator))

    def _finish_block(self, iterator: Any) -> None:
        block = self._block
        assert block is not None
        self._count_cpu(block, iterator)
        self._done.append(block)
        self._note(block)
        if not self._leads:
            self._next = self._board.read(block.number + 1)
            if self._next is None and self._board.stop_at is None:
                self._board.stop_at = self._step  # the leader is gone
        if not self._stays(block, self._next):
            self._arms[block.arm].off(iterator)

    def _stop(self, iterator: Any) -> None:
        self._over = True
        self._switch_off(iterator)
        self._feeder.finishing = True
        self._leave()
        self._end()

    def _end(self) -> None:
        if not self._plan["go_on"]:
            self._probe.count.limit = 1  # ends the run at the next boundary, in an orderly way

    def _switch_off(self, iterator: Any) -> None:
        for arm in self._arms[1:]:
            if not arm.refused:
                arm.off(iterator)

    def _leave(self) -> None:
        """Say how each intervention went; also where the script ends first."""
        if self._plan.get("left"):
            return
        self._plan["left"] = True
        for number, arm in enumerate(self._arms[1:], 1):
            self._probe.note(
                "intervention",
                name=arm.name,
                status=_LOST if number in self._lost else arm.status(),
                exact=self._feeder.kept if isinstance(arm, FreeData) else "",
                others=self._feeder.beside() if arm.feeds else [],
                members=arm.members(),
                leads=self._leads,
            )


def install(probe: Probe, plan: dict[str, Any]) -> None:
    """``plan``: interventions, board (file), budget_s, width (half of the interval), go_on."""
    Session(probe, plan).install()
