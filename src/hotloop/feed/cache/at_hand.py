"""Torch's single-process iterator without what it does for samples that have to be made.

Beside a step of half a millisecond the index of every sample, drawn one by one, and the calls from the
iterator down to the dataset cost more than the copy that makes the batch.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, SubsetRandomSampler
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

from hotloop.feed.cache.dataset import CachedDataset

#: Their order depends on nothing that happens while it is gone through, and draws on no generator but theirs.
_FIXED: Final = (SequentialSampler, RandomSampler, SubsetRandomSampler)


def hand_out(iterator: Any, cached: CachedDataset) -> None:
    """Make ``iterator`` take whole batches from ``cached``, where the cache has all samples; else nothing."""
    plain = type(iterator) is _SingleProcessDataLoaderIter and not iterator._pin_memory
    if plain and iterator._auto_collation and cached.is_at_hand() and cached.cache.whole is not None:
        iterator.__class__ = _AtHand
        iterator._cached = cached
        iterator._drawn = None


class _AtHand(_SingleProcessDataLoaderIter):  # type: ignore[misc,unused-ignore]
    _cached: CachedDataset
    _drawn: Any

    def _next_data(self) -> Any:
        if self._drawn is None:
            self._drawn = _drawn(self._index_sampler, self._sampler_iter)
        return self._cached.gather(next(self._drawn))


def _drawn(sampler: Any, indices: Any) -> Any:
    """The indices of each batch; all drawn at once where that is the same."""
    within = getattr(sampler, "sampler", None)
    if type(sampler) is not BatchSampler or type(within) not in _FIXED:
        return indices
    if getattr(within, "generator", None) is not None:  # the script may draw on it meanwhile
        return indices
    return iter([np.array(batch) for batch in indices])
