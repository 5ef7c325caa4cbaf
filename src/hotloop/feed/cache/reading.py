"""Getting samples out: no lock is taken, and under eviction nobody sees what is being overwritten."""

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
        try:
            return self._read_checked(index) if self._shared.evicts else self._read_kept(index)
        except OSError:
            return MISSING  # this process cannot map it

    def _read_kept(self, index: int) -> Any:
        shared = self._shared
        if shared.state[index] != READY:
            return MISSING
        fence()
        one = shared.table.one
        offset = one["offset"][index]
        end = offset + one["num_bytes"][index]
        number = one["layout"][index]
        if self._copy:
            of, memory = shared.layouts.layout(number, shared.arena.bytes(end)[offset:end].copy())
            return layout.read(of, memory, copy=False)
        of, memory = shared.layouts.layout(number, shared.arena.frozen(end)[offset:end])
        return tree_map(_frozen, layout.read(of, memory, copy=False))

    def _read_checked(self, index: int) -> Any:
        """Copy first, then see whether what was copied was whole; only then look into it."""
        shared = self._shared
        one = shared.table.one
        version = one["version"][index]
        if version & 1 or shared.state[index] != READY:
            return MISSING
        fence()
        number = one["layout"][index]
        memory = shared.space.read(index)
        fence()
        if memory is None or one["version"][index] != version or shared.state[index] != READY:
            return MISSING
        of, memory = shared.layouts.layout(number, memory)
        return layout.read(of, memory, copy=False)

    def gather(self, indices: NDArray[np.int64], out: Out | None) -> Any:
        """The collated batch, or MISSING if not all samples are here and alike."""
        shared, table, evicts = self._shared, self._shared.table, self._shared.evicts
        version = table.version[indices] if evicts else None  # before the state: either may change
        if not len(indices) or table.state[indices].min() != READY:
            return MISSING
        if version is not None and (version & 1).any():
            return MISSING
        fence()
        numbers = table.layout[indices]
        number = int(numbers[0])
        if number == INLINE or (evicts and table.scattered[indices].any()):
            return MISSING
        batched, offsets, places = self._batched_for(number), table.offset[indices], None
        if batched is None:
            return MISSING
        if (numbers != number).any() and (places := self._places(numbers)) is None:
            return MISSING
        end = int((offsets + table.num_bytes[indices]).max())
        if end > shared.header[Header.FRONTIER]:
            return MISSING
        try:
            leaves = batched.gather(shared.arena.bytes(end), offsets, out or empty, places)
        except OSError:
            return MISSING  # this process cannot map it
        fence()
        if version is not None and (
            (table.version[indices] != version).any() or table.state[indices].min() != READY
        ):
            return MISSING
        self._unseen -= len(indices)
        if self._unseen < 0:
            self._unseen = len(table.state) // _LOOKS
            self.has_all()
        return batched.collated(leaves)

    def has_all(self) -> bool:
        """Whether :meth:`gather` will find all samples from now on; ``whole`` may then do it instead."""
        if self.whole is not None:
            return True
        shared, table = self._shared, self._shared.table
        if shared.evicts or not len(table.state) or table.state.min() != READY:
            return False
        fence()
        number = int(table.layout[0])
        if number == INLINE or (table.layout != number).any():
            return False
        batched = self._batched_for(number)
        if batched is None:
            return False
        try:
            shared.arena.bytes(shared.header[Header.FRONTIER])
            self.whole = Whole.of(shared, batched)
        except OSError:
            return False
        return True

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
