"""What observers have called: after updates, at ticks, once a second, in workers, at exit, after a fork.

Each is guarded under the name of its observer.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Final

from hotloop.hooks.registry import Hooks, Switch
from hotloop.probe.counting import StepCount

#: Slow housekeeping (``on_second``) runs at step ends, at most this often.
_SECOND_NS: Final = 1_000_000_000
#: ``on_tick``: at most this often, later after this part of the time so far, and once a second in the end. So
#: a run of three seconds tells as much of its course as one of days.
_FIRST_TICK_NS: Final = 100_000_000
_TICK_PART: Final = 10
#: ... and not before this many times what it took.
_TICK_COST: Final = 333


class Callbacks:
    """The lists of callbacks of one process."""

    def __init__(self, hooks: Hooks) -> None:
        self.hooks = hooks
        self.count = StepCount()
        self.callbacks: list[tuple[Switch, Callable[[], None]]] = []  # of updates
        self._on_second: list[Callable[[], None]] = []
        self._on_tick: list[Callable[[], None]] = []
        self._first_tick = self._next_second = 0
        self._on_made: list[Callable[[int], None]] = []
        self._on_exit: list[Callable[[], None]] = []
        self._on_fork: list[Callable[[], None]] = []

    def on_update(self, observer: str, function: Callable[[], None]) -> None:
        """Call at the end of every outermost ``Optimizer.step`` of the recorded thread, after its row."""
        self.callbacks = [*self.callbacks, (self.hooks.switch(observer), function)]
        self.count.callbacks = len(self.callbacks)

    def off_update(self, function: Callable[[], None]) -> None:
        """Call it no more."""
        self.callbacks = [entry for entry in self.callbacks if entry[1] != function]
        self.count.callbacks = len(self.callbacks)

    def on_second(self, observer: str, function: Callable[[], None]) -> None:
        """Call at the end of an update (or of a backward, where nothing updates), at most once a second."""
        self._on_second.append(self.hooks.guard(observer, function))

    def on_tick(self, observer: str, function: Callable[[], None]) -> None:
        """Like ``on_second``, and more often in the first ten seconds."""
        self._on_tick.append(self.hooks.guard(observer, function))

    def on_made(self, observer: str, function: Callable[[int], None]) -> None:
        """Call in a DataLoader worker between two batches, at most once a second, with how many it made."""
        self._on_made.append(self.hooks.guard(observer, function))

    def on_exit(self, observer: str, function: Callable[[], None]) -> None:
        """Call when the interpreter exits, before the files are closed; also in workers that exit orderly."""
        self._on_exit.append(self.hooks.guard(observer, function))

    def on_fork(self, observer: str, function: Callable[[], None]) -> None:
        """Call in a forked child, right after the fork. Keep it small: most children do nothing of
        interest.
        """
        self._on_fork.append(self.hooks.guard(observer, function))

    def updated(self) -> None:
        """Call what waits for the end of an update (called by the observer of optimizers)."""
        for switch, function in self.callbacks:
            try:
                function()
            except Exception as error:  # a guard without its call: this runs in every step
                self.hooks.failed(switch, error)
                self.off_update(function)

    def tick(self, now: int) -> None:
        """Slow housekeeping; due at ``count.next_tick``."""
        self._first_tick = self._first_tick or now
        part = (now - self._first_tick) // _TICK_PART
        for function in self._on_tick:
            function()
        cost = _TICK_COST * (perf_counter_ns() - now)
        self.count.next_tick = now + min(_SECOND_NS, max(_FIRST_TICK_NS, part, cost))
        if now < self._next_second:
            return
        self._next_second = now + _SECOND_NS
        for function in self._on_second:
            function()

    def made(self, count: int) -> None:
        """A worker made so many batches (called by the observer of workers)."""
        for function in self._on_made:
            function(count)
