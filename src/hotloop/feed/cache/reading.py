"""Getting samples out: no lock is taken, as a sample that is there stays where it is."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotloop.feed import layout
from hotloop.feed.batching import empty
from hotloop.feed.cache.gather import Batched, places_of, plan_batch
from hotloop.feed.cache.layouts import INLINE
from hotloop.feed.cache.lock import fence
from hotloop.feed.cache.shared import Shared
from hotloop.feed.cache.table import READY, Header
from hotloop.feed.collating import Out

#: Stands for «not here» where None may be a sample.
MISSING: Any = type("Missing", (), {"__repr__": lambda self: "MISSING", "__slots__": ()})()

#: Times per epoch that a cache is looked through for whether it has become whole.
_LOOKS = 4


class SampleReader:
    """Reads a cache through one process's hold on it."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._batched: dict[int, Batched | None] = {}
        self._of_all: Batched | None = None  # once all samples are here and alike: nothing is looked up
        self._unseen = 0  # samples to be gathered before it is worth a look whether they are

    def read(self, index: int) -> Any:
        """A sample, or MISSING."""
        shared = self._shared
        if shared.state[index] != READY:
            return MISSING
        fence()
        one = shared.table.one
        offset = one["offset"][index]
        end = offset + one["num_bytes"][index]
        try:
            sample = shared.arena.bytes(end)[offset:end].copy()
        except OSError:
            return MISSING  # this process cannot map it
        of, payload = shared.layouts.layout(one["layout"][index], sample)
        return layout.read(of, payload, copy=False)

    def gather(self, indices: NDArray[np.int64], out: Out | None) -> Any:
        """The collated batch, or MISSING if not all samples are here and alike."""
        shared, table = self._shared, self._shared.table
        batched, places = self._of_all, None
        if not len(indices):
            return MISSING
        if batched is None:
            if table.state.take(indices).min() != READY:
                return MISSING
            fence()
            numbers = table.layout.take(indices)
            batched = self._batched_for(int(numbers[0]))
            if batched is None:
                return MISSING
            if (numbers != numbers[0]).any() and (places := self._places(numbers)) is None:
                return MISSING
            self._look_for_all(len(indices))
        offsets = table.offset.take(indices)
        try:
            memory = shared.arena.bytes(shared.header[Header.FRONTIER])
        except OSError:
            return MISSING  # this process cannot map it
        return batched.collated(batched.gather(memory, offsets, out or empty, places))

    def _look_for_all(self, num_gathered: int) -> None:
        self._unseen -= num_gathered
        if self._unseen < 0:
            table = self._shared.table
            self._unseen = len(table.state) // _LOOKS
            if table.state.min() == READY and (table.layout == table.layout[0]).all():
                self._of_all = self._batched_for(int(table.layout[0]))

    def _places(self, numbers: NDArray[np.uint32]) -> NDArray[np.int64] | None:
        """Where the leaves lie of samples whose texts differ in length; None: they differ in more."""
        different, which = np.unique(numbers, return_inverse=True)
        if different[0] == INLINE:  # the smallest
            return None
        places = places_of([self._shared.layouts.by_number(int(number)) for number in different])
        return None if places is None else places[which]

    def _batched_for(self, number: int) -> Batched | None:
        if number == INLINE:
            return None
        if number not in self._batched:
            self._batched[number] = plan_batch(self._shared.layouts.by_number(number))
        return self._batched[number]
