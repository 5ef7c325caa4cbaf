"""What the loop asks beside the driving loader: another in each step, one in some steps, evaluations."""

from __future__ import annotations

import weakref
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

#: Steps that tell what each step asks, the least of them, and the part of them that has to agree.
_STEPS: Final = 8
_LEAST: Final = 4
_AGREE: Final = 0.75
#: A loader asked this often, with updates between, trains and does not evaluate.
_LEAST_APART: Final = 3


@dataclass
class _Asked:
    iterator: Any  # weak
    count: int = 0
    apart: int = 0  # with gradients on, and an update since it was asked last
    updates: int = -1
    first: int = -1  # step that asked it first, and last
    last: int = -1
    steps: int = 0  # that asked it


class Beside:
    """Batches of the other loaders, by loader id and step."""

    def __init__(self) -> None:
        self._steps: deque[dict[int, int]] = deque(maxlen=_STEPS)
        self._now: dict[int, int] = {}
        self._asked: dict[int, _Asked] = {}
        self._number = 0  # steps so far

    def ask(self, loader: int, iterator: Any, *, updates: int, training: bool) -> None:
        """A batch that the loop got from ``loader`` after so many updates; ``training``: gradients are on."""
        self._now[loader] = self._now.get(loader, 0) + 1
        asked = self._asked.setdefault(loader, _Asked(None))
        asked.iterator = weakref.ref(iterator)
        asked.count += 1
        asked.apart += training and updates != asked.updates
        asked.updates = updates
        asked.steps += asked.last != self._number
        asked.last = self._number
        asked.first = self._number if asked.first < 0 else asked.first

    def step(self) -> None:
        """The driving loader gave its next batch."""
        self._steps.append(self._now)
        self._now = {}
        self._number += 1

    def every_step(self) -> dict[int, int]:
        """The loaders that each step asks for the same number of batches, and the number."""
        found = {}
        for loader in {loader for step in self._steps for loader in step if loader}:
            counts = [step.get(loader, 0) for step in self._steps]
            usual = max(set(counts), key=counts.count)
            if usual and len(counts) >= _LEAST and counts.count(usual) >= _AGREE * len(counts):
                found[loader] = usual
        return found

    def some(self, loader: int) -> bool:
        """Whether a loader feeds updates and, while it lived, not each step asked it."""
        asked = self._asked.get(loader)
        if asked is None or asked.apart < max(_LEAST_APART, asked.count / 2):
            return False
        return asked.steps - 1 < _AGREE * (asked.last - asked.first)

    def some_steps(self) -> list[int]:
        """The loaders that some steps ask."""
        return [loader for loader in self._asked if self.some(loader)]

    def iterator(self, loader: int) -> Any:
        """The one of ``loader`` that was asked last, None where it is gone."""
        return self._asked[loader].iterator()
