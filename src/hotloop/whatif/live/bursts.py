"""Batches taken ahead, of every loader that each step asks."""

from __future__ import annotations

from typing import Any

from hotloop.state.generators import random_states
from hotloop.state.identity import Known
from hotloop.whatif.live.ahead import Ahead, release
from hotloop.whatif.live.beside import Beside
from hotloop.whatif.live.sibling import Sibling


class Bursts:
    """What was taken ahead of the loop. ``kept`` says why a run that was fed ahead is not the one it would
    have been, "" where it is.
    """

    def __init__(self) -> None:
        self._ahead: Known[Ahead] = Known()  # by iterator
        self._left: list[Sibling] = []  # deliver what they were given, then it is over
        self.drives = 0  # id of the driving loader, 0 unknown
        self.beside = Beside()
        self.kept = ""

    def fill(self, iterator: Any, num_steps: int) -> list[dict[str, Any]]:
        """Take ahead what ``num_steps`` steps ask of each loader that has nothing ahead; facts of each."""
        wanted = [(self.drives, iterator, 1)]
        wanted += [
            (n, self.beside.iterator(n), count) for n, count in sorted(self.beside.every_step().items())
        ]
        return [
            {"place": place, "loader": number, "per_step": count, **self._fill(one, num_steps * count)}
            for place, (number, one, count) in enumerate(wanted)
            if one is not None and not self._has_ahead(one)
        ]

    def _has_ahead(self, iterator: Any) -> bool:
        ahead = self._ahead.get(iterator)
        return ahead is not None and ahead.follows(iterator)

    def _fill(self, iterator: Any, count: int) -> dict[str, Any]:
        given = []
        while self._left and self._left[0].follows(iterator):
            sibling = self._left.pop(0)
            given += [sibling.next() for _ in range(sibling.outstanding)]
        ahead, states = Ahead(iterator), random_states()
        self._ahead.put(iterator, ahead)
        facts = ahead.take(iterator, count, given)
        # The first batch of an epoch has the sampler draw.
        if not facts["workers"] and iterator._num_yielded and states != random_states():
            self.kept = "the dataset draws random numbers in the training process"
        return facts

    def settle(self) -> None:
        """Let all workers go on."""
        for iterator, _ in self._ahead.values():
            release(iterator)
