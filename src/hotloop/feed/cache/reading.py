"""Getting samples out: no lock is taken, as a sample that is there stays where it is."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotloop.feed import layout
from hotloop.feed.batching import empty
from hotloop.feed.cache.gather import Batched, places_of, plan_batch
from hotloop.feed.cache.layouts import INLINE
from hotloop.feed.cache.lock import fence
from hotloop.feed.cache.shared import Shared
from hotloop.feed.cache.table import READY
from hotloop.feed.cache.whole import Whole
from hotloop.feed.collating import Out
from hotloop.feed.tree import tree_map

#: Stands for «not here» where None may be a sample.
MISSING: Any = type("Missing", (), {"__repr__": lambda self: "MISSING", "__slots__": ()})()

#: Times per epoch that a cache is looked through for whether it has become whole.
_LOOKS = 4


class SampleReader:
    """Reads a cache through one process's hold on it."""

    def __init__(self, shared: Shared, *, copy: bool) -> None:
        self._shared = shared
        self._copy = copy
        self._batched: dict[int, Batched | None] = {}
        self.whole: Whole | None = None
        self._unseen = 0  # samples to be gathered before it is worth a look whether all are here

    def read(self, index: int) -> Any:
        """A sample, or MISSING."""
        shared = self._shared
        if shared.state[index] != READY:
            return MISSING
        fence()
        one = shared.table.one
        offset = one["offset"][index]
        end = offset + one["num_bytes"][index]
        number = one["layout"][index]
        try:
            memory = shared.arena.bytes(end) if self._copy else shared.arena.frozen(end)
        except OSError:
            return MISSING  # this process cannot map it
        sample = memory[offset:end].copy() if self._copy else memory[offset:end]
        of, payload = shared.layouts.layout(number, sample)
        found = layout.read(of, payload, copy=False)
        return found if self._copy else tree_map(_frozen, found)

    def gather(self, indices: NDArray[np.int64], out: Out | None) -> Any:
        """The collated batch, or MISSING if not all samples are here and alike."""
        shared, table = self._shared, self._shared.table
        if not len(indices) or table.state[indices].min() != READY:
            return MISSING
        fence()
        numbers = table.layout[indices]
        number = int(numbers[0])
        batched = None if number == INLINE else self._batched_for(number)
        if batched is None:
            return MISSING
        places = None
        if (numbers != number).any() and (places := self._places(numbers)) is None:
            return MISSING
        offsets = table.offset[indices]
        try:
            memory = shared.arena.bytes(int((offsets + table.num_bytes[indices]).max()))
        except OSError:
            return MISSING  # this process cannot map it
        leaves = batched.gather(memory, offsets, out or empty, places)
        self._unseen -= len(indices)
        if self._unseen < 0:
            self._unseen = len(table.state) // _LOOKS
            self._look_for_all()
        return batched.collated(leaves)

    def _look_for_all(self) -> None:
        """If :meth:`gather` will find all samples from now on, ``whole`` may do it instead."""
        shared, table = self._shared, self._shared.table
        if self.whole is not None or table.state.min() != READY:
            return
        fence()
        number = int(table.layout[0])
        batched = None if number == INLINE or (table.layout != number).any() else self._batched_for(number)
        if batched is not None:
            with contextlib.suppress(OSError):  # this process cannot map it
                self.whole = Whole.of(shared, batched)

    def _places(self, numbers: NDArray[np.uint32]) -> NDArray[np.int64] | None:
        """Where the leaves lie of samples whose texts differ in length; None: they differ in more."""
        different, which = np.unique(numbers, return_inverse=True)
        if different[0] == INLINE:  # the smallest
            return None
        places = places_of([self._shared.layouts.by_number(int(number)) for number in different])
        return None if places is None else places[which]

    def _batched_for(self, number: int) -> Batched | None:
        if number not in self._batched:
            self._batched[number] = plan_batch(self._shared.layouts.by_number(number))
        return self._batched[number]


def _frozen(leaf: Any) -> Any:
    if type(leaf) is np.ndarray:
        leaf.flags.writeable = False
    return leaf
