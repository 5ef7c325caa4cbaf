"""Counting steps while they happen, and ending the run after a number of them (``--steps``)."""

from __future__ import annotations

import os
from typing import Final

from hotloop import fast

#: The first updates are warm-up: caches fill, allocators grow, kernels are chosen.
WARM_UP: Final = 5
#: More rounds than this on one batch: whatever the loader was for, it does not drive the training.
_UNFED: Final = 20


def with_limit(source: str, count: StepCount, call: str) -> str:
    """The source of a wrapper with a call where it says ``{stop_if_done}``, if anybody may end the run."""
    return source.replace("{stop_if_done}", call if count.may_end else "pass")


class StepCount(fast.Counts):
    """A step is one batch of a loader that training follows; without a loader, one round of the optimizers;
    without an optimizer, one backward.

    The wrappers of ``next``, backward and the optimizers count up themselves: they run in every step, on a
    cold cache, so what they need lies together.
    """

    __slots__ = ("limit", "may_end", "stepped", "stopped")

    def __init__(self) -> None:
        self.callbacks = self.next_tick = 0
        limit = os.environ.get("HOTLOOP_STEPS", "")
        self.limit = int(limit) + WARM_UP if limit.isdigit() and int(limit) > 0 else 0
        #: Whether ``limit`` is set, or may be set while the run goes on.
        self.may_end = bool(
            self.limit or os.environ.get("HOTLOOP_UNTIL") or os.environ.get("HOTLOOP_WHAT_IF")
        )
        #: Optimizers that stepped in this round.
        self.stepped: set[int] = set()
        self.restart()

    def restart(self) -> None:
        """Count from 0."""
        self.stopped = False
        self.batches = self.rounds = self.fed_at = self.backwards = self.fetched = self.updates = 0
        self.opened = self.opened_at = self.opened_site = self.skip = 0
        self.stepped.clear()

    @property
    def steps(self) -> int:
        """Steps so far."""
        return max(self.batches, self.rounds) or self.backwards

    @property
    def turns(self) -> int:
        """Rounds of the optimizers; where the script updates by hand, backwards."""
        return self.rounds or self.backwards

    @property
    def fed(self) -> bool:
        """Whether a loader drives the training: then the run ends where the next batch is asked for."""
        return self.batches > 0 and self.rounds - self.fed_at < _UNFED

    def stop_if_done(self) -> None:
        """End the run in an orderly way once the wanted number of steps is done.

        Raised between two steps, in the training thread: the script's ``finally`` blocks and exit functions
        run.
        """
        if self.limit and self.steps >= self.limit:
            self.stopped = True
            raise SystemExit(0)
