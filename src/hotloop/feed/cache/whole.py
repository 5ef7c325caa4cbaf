"""All samples of a cache, alike and here to stay: a batch is one copy per leaf, and nothing is looked up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hotloop.feed.cache.gather import Batched
from hotloop.feed.cache.shared import Shared
from hotloop.feed.cache.table import Header
from hotloop.feed.collating import Out
from hotloop.feed.rows import gather, gathered
from hotloop.feed.tree import Branch, Leaf


class Whole:
    """A hold on a cache that has every sample. Beside a step of half a millisecond each look-up counts."""

    @classmethod
    def of(cls, shared: Shared, batched: Batched) -> Whole | None:
        """None where a leaf is no tensor in row order. Raises OSError where they cannot be mapped."""
        if any(dtype is None or "@" in field.dtype for field, dtype in batched.leaves):
            return None
        return cls(shared, batched)

    def __init__(self, shared: Shared, batched: Batched) -> None:
        self._shared = shared
        self._starts = shared.table.offset
        self._saved_ns = float(shared.table.cost_s.mean(dtype=np.float64)) * 1e9
        memory = shared.arena.bytes(shared.header[Header.FRONTIER])
        # Where a leaf lies in its sample is the same for all: its source begins there.
        self._leaves = [
            (memory[field.offset :], field.shape, dtype, field.num_bytes) for field, dtype in batched.leaves
        ]
        self._collated = _collation(batched)

    def gather(self, indices: Sequence[Any] | NDArray[np.int64], out: Out | None = None) -> Any:
        """The collated batch, or None where these are no numbers of samples."""
        numbers = np.asarray(indices)
        if numbers.dtype.kind not in "iu" or numbers.ndim != 1:
            return None
        try:
            starts = self._starts.take(numbers)  # from the end too, as the dataset counts
        except (IndexError, TypeError):  # uint64 is no index
            return None
        num = len(starts)
        leaves = []
        for source, shape, dtype, num_bytes in self._leaves:
            if out is None:
                leaves.append(gathered(source, starts, (num, *shape), dtype, num_bytes))
                continue
            batch = out((num, *shape), dtype)
            if num_bytes:
                gather(source, starts, batch, num_bytes)
            leaves.append(batch)
        self._shared.count_found(num, self._saved_ns)
        return self._collated(leaves)


def _collation(batched: Batched) -> Any:
    """What makes the batch of its leaves; most are a list of them."""
    structure = batched.batch.structure
    if not isinstance(structure, Branch) or structure.kind != "list":
        return batched.collated
    flat = all(isinstance(child, Leaf) for child in structure.children)
    return list[torch.Tensor] if flat else batched.collated
