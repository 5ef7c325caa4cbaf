"""Getting samples out: no lock is taken, as a sample that is there stays where it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hotloop.feed import layout as layouts
from hotloop.feed.cache.shared import Shared
from hotloop.feed.cache.table import INLINE, READY, Header, fence
from hotloop.feed.collating import Batch, Out, batch_dtype, empty, filled, gather
from hotloop.feed.layout import Field, Layout

_STRINGS = (layouts.TEXT, layouts.BYTES)


@dataclass(frozen=True, kw_only=True)
class Batched:
    """How to gather a layout; the dtype of a leaf is None where it is text or bytes."""

    batch: Batch
    leaves: tuple[tuple[Field, torch.dtype | None], ...]

    def gather(
        self,
        arena: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        out: Out,
        places: NDArray[np.int64] | None = None,
    ) -> list[Any]:
        """The leaves of the batch of samples at these offsets.

        ``places`` [sample, leaf, 2]: where each leaf begins in its sample, and its bytes (None: all alike).
        """
        if places is None:
            return [_leaf(field, dtype, arena, offsets + field.offset, out) for field, dtype in self.leaves]
        return [
            _leaf(field, dtype, arena, offsets + places[:, leaf, 0], out, places[:, leaf, 1].tolist())
            for leaf, (field, dtype) in enumerate(self.leaves)
        ]

    def collated(self, leaves: list[Any]) -> Any:
        """The batch of these leaves; only now that they are known to be whole, bytes become text."""
        for position, (field, _) in enumerate(self.leaves):
            if field.kind == layouts.TEXT:
                leaves[position] = [raw.decode("utf-8", "surrogatepass") for raw in leaves[position]]
        return self.batch.build(leaves)


def places_of(layouts: list[Layout]) -> NDArray[np.int64] | None:
    """Offset and bytes of every leaf [layout, leaf, 2]; None where more differs than the lengths of texts."""
    alike = {(layout.structure, *(field[:3] for field in layout.fields)) for layout in layouts}
    if len(alike) > 1:
        return None
    return np.array([[field[3:] for field in layout.fields] for layout in layouts], np.int64)


def plan_batch(layout: Layout) -> Batched | None:
    """How to gather samples of this layout; None where only ``default_collate`` itself knows."""
    batch = Batch.of(layout.structure)
    leaves = tuple((field, batch_dtype(field)) for field in layout.fields)
    known = all(dtype is not None or field.kind in _STRINGS for field, dtype in leaves)
    if batch is None or not known or not layout.num_bytes:
        return None
    return Batched(batch=batch, leaves=leaves)


def _leaf(
    field: Field,
    dtype: torch.dtype | None,
    arena: NDArray[np.uint8],
    starts: NDArray[np.int64],
    out: Out,
    sizes: Sequence[int] | None = None,
) -> Any:
    if dtype is None:
        pairs = zip(starts.tolist(), sizes or [field.num_bytes] * len(starts), strict=True)
        return [arena[start : start + size].tobytes() for start, size in pairs]

    def fill(batch: torch.Tensor) -> None:
        if field.num_bytes:
            gather(arena, starts, batch, field.num_bytes)

    return filled(fill, len(starts), field, dtype, out)


#: Stands for «not here» where None may be a sample.
MISSING: Any = type("Missing", (), {"__repr__": lambda self: "MISSING", "__slots__": ()})()


class SampleReader:
    """Reads a cache through one process's hold on it."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._batched: dict[int, Batched | None] = {}

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
        return layouts.read(of, payload, copy=False)

    def gather(self, indices: NDArray[np.int64], out: Out | None) -> Any:
        """The collated batch, or MISSING if not all samples are here and alike."""
        shared, table = self._shared, self._shared.table
        if not len(indices) or table.state.take(indices).min() != READY:
            return MISSING
        fence()
        numbers, places = table.layout.take(indices), None
        batched = self._batched_for(int(numbers[0]))
        if batched is None:
            return MISSING
        if (numbers != numbers[0]).any() and (places := self._places(numbers)) is None:
            return MISSING
        offsets = table.offset.take(indices)
        try:
            memory = shared.arena.bytes(shared.header[Header.FRONTIER])
        except OSError:
            return MISSING  # this process cannot map it
        return batched.collated(batched.gather(memory, offsets, out or empty, places))

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
