"""Whether the order of samples is drawn by turns with what others draw from the same generator.

A sampler of the script's may draw for each batch (its classes, its size), and torch's own draw when the first
one is asked for. Workers have batches asked for ahead of the loop: where the loop, or samples made in the
training process, draw in between from the same generator, all of them then get other numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from hotloop.probe.draws import global_states

#: Batches of a pass that are watched: one for samplers of torch's, which draw before the first.
_BATCHES: Final = 12


class Watched:
    """Goes through a sampler in its place, and calls ``tell`` with the generators once they are seen."""

    def __init__(self, sampler: Iterator[Any], *, own: bool, tell: Callable[[list[str]], None]) -> None:
        self._sampler, self._tell = sampler, tell
        self._left = _BATCHES if own else 1
        self._before = global_states()
        self._asked = self._ended = False
        self._ahead: set[str] = set()  # drawn from for a batch behind the first

    def __iter__(self) -> Watched:
        return self

    def __next__(self) -> Any:
        try:
            return self._watched() if self._left else next(self._sampler)
        except StopIteration:
            self._ended = True
            raise

    def _watched(self) -> Any:
        self._left -= 1
        begun = global_states()
        indices = next(self._sampler)
        ended = global_states()
        drawn = {name for name, state in begun.items() if ended[name] != state}
        if self._asked:
            self._ahead |= drawn
        between = {name for name in drawn if self._before.get(name) != begun[name]}
        self._before, self._asked = ended, True
        if between:
            self._left = 0
            self._tell(sorted(between))
        return indices

    def followed(self) -> None:
        """Another pass begins: of one that was left before its end, workers had drawn ahead."""
        if self._ahead and not self._ended:
            self._tell(sorted(self._ahead))
