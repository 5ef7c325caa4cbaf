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


class Order:
    """Who drew the order of one pass: ``tell`` is called with the generators once they are seen.

    It outlives the pass, and so refers to nothing of the script's.
    """

    def __init__(self, *, own: bool, tell: Callable[[list[str]], None]) -> None:
        self.left = _BATCHES if own else 1
        self.ended = False
        self._tell = tell
        self._before = global_states()
        self._begun: dict[str, Any] | None = None
        self._asked = False
        self._ahead: set[str] = set()  # drawn from for a batch behind the first

    def begins(self) -> None:
        """Indices are asked for."""
        self.left -= 1
        self._begun = None
        self._begun = global_states()

    def drew(self) -> None:
        """They were handed out."""
        begun = self._begun
        if begun is None:
            return
        ended = global_states()
        drawn = {name for name, state in begun.items() if ended[name] != state}
        if self._asked:
            self._ahead |= drawn
        between = {name for name in drawn if self._before.get(name) != begun[name]}
        self._before, self._asked = ended, True
        if between:
            self.left = 0
            self._tell(sorted(between))

    def followed(self) -> None:
        """Another pass begins: of one that was left before its end, workers had drawn ahead."""
        if self._ahead and not self.ended:
            self._tell(sorted(self._ahead))


class Watched:
    """Goes through a sampler in its place; ``guard`` keeps what fails of ours from the script."""

    def __init__(
        self, sampler: Iterator[Any], order: Order, guard: Callable[[Callable[[], None]], Callable[[], None]]
    ) -> None:
        self._sampler, self._order = sampler, order
        self._begins, self._drew = guard(order.begins), guard(order.drew)

    def __iter__(self) -> Watched:
        return self

    def __next__(self) -> Any:
        order = self._order
        watched = order.left > 0
        if watched:
            self._begins()
        try:
            indices = next(self._sampler)
        except StopIteration:
            order.ended = True
            raise
        if watched:
            self._drew()
        return indices
