"""A batch of samples of one layout, copied leaf by leaf in one go, as torch's ``default_collate`` has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hotloop.feed import layout as layouts
from hotloop.feed.batching import Batch, batch_dtype, filled
from hotloop.feed.collating import Out
from hotloop.feed.layout import Field, Layout
from hotloop.feed.rows import gather

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
