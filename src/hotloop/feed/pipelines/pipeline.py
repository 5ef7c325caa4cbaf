"""A dataset as stages one after the other, and the forms that need no looking: whole, a subset."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from torch.utils.data import Subset

#: Called after each stage with its name and what it gave.
Observer = Callable[[str, Any], None]
#: What follows a cut: takes the index and the value at the cut, gives the dataset's sample.
Remaining = Callable[[int, Any], Any]

WHOLE = "__getitem__"


class Pipeline:
    """A dataset as stages one after the other; the last stage's output is the dataset's sample.

    This one has a single stage: ``why_whole`` says why it is not taken apart.
    """

    names: tuple[str, ...]
    why_whole: str = ""

    def __init__(self, dataset: Any, why: str = "") -> None:
        self.dataset = dataset
        self.names = (WHOLE,)
        self.why_whole = why

    def run(self, index: int, after: Observer) -> Any:
        """Read one sample, calling ``after`` after every stage; the sample."""
        value = self.dataset[index]
        after(WHOLE, value)
        return value

    def prefix(self, cut: int) -> Any:
        """A map-style dataset of what stage number ``cut`` gives; picklable if the dataset is."""
        return self.dataset

    def remaining(self, cut: int) -> Remaining:
        """What follows stage number ``cut``; picklable if the dataset is."""
        return as_it_is


def as_it_is(index: int, value: Any) -> Any:
    """What remains after the last stage: nothing."""
    return value


class SubsetPipeline(Pipeline):
    """The stages of the dataset under a ``torch.utils.data.Subset``."""

    def __init__(self, inner: Pipeline, indices: Sequence[int]) -> None:
        self.inner = inner
        self.indices = indices
        self.names = inner.names

    def run(self, index: int, after: Observer) -> Any:
        """Read the sample of the dataset beneath."""
        return self.inner.run(self.indices[index], after)

    def prefix(self, cut: int) -> Any:
        """The same subset of the prefix beneath."""
        return Subset(self.inner.prefix(cut), self.indices)

    def remaining(self, cut: int) -> Remaining:
        """What follows beneath, for the index beneath."""
        return functools.partial(_beneath, self.inner.remaining(cut), self.indices)


def _beneath(remaining: Remaining, indices: Sequence[int], index: int, value: Any) -> Any:
    return remaining(indices[index], value)


def numbered(names: Sequence[str]) -> tuple[str, ...]:
    """The names with ``#1``, ``#2`` behind those that come more than once."""
    counts, seen = Counter(names), Counter[str]()
    found = []
    for name in names:
        seen[name] += 1
        found.append(f"{name}#{seen[name]}" if counts[name] > 1 else name)
    return tuple(found)
