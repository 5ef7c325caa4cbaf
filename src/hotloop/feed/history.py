"""What a worker remembers of its random generators, so that a loader can be resumed between any two batches."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from hotloop.feed import randomness

#: States are kept before every batch that took this long, else before one in ``_EVERY``: they cost some 25 us.
_WORTH_KEEPING_NS: Final = 1_000_000
_EVERY: Final = 64


class History:
    """Generator states before the last tasks, or before one from which the later ones can be made again.

    ``depth``: how many of the newest tasks may be asked for. ``whole``: always answer with the epoch's first
    task, where what was read before cannot be skipped (iterable datasets).
    """

    def __init__(self, depth: int, *, whole: bool) -> None:
        self._states: deque[tuple[int, Any]] = deque()
        self._recent: deque[int] = deque(maxlen=depth)
        self._whole = whole
        self._since = 0
        self._cheap = False

    def before(self, task: int) -> None:
        """A task begins."""
        states = self._states
        if not states or not (self._whole or (self._cheap and self._since < _EVERY)):
            states.append((task, randomness.capture()))
            self._since = 0
        self._since += 1
        self._recent.append(task)
        while len(states) > 1 and states[1][0] <= self._recent[0]:
            states.popleft()

    def after(self, wall_ns: int) -> None:
        """It ended."""
        self._cheap = wall_ns < _WORTH_KEEPING_NS

    def restart(self) -> None:
        """A new epoch: its tasks count from 0 again."""
        self._states.clear()
        self._recent.clear()

    def ask(self, task: int) -> tuple[int, Any]:
        """A task at or before this one and the states before it; all from there on must be made again."""
        if self._recent and task <= self._recent[-1]:
            return next(found for found in reversed(self._states) if found[0] <= task)
        if self._whole and self._states:
            return self._states[0]
        return task, randomness.capture()
