"""Torch's single-process iterator without what it does for samples that have to be made.

Beside a step of half a millisecond the index of every sample, drawn one by one, and the calls from the
iterator down to the dataset cost more than the copy that makes the batch.
"""

from __future__ import annotations

from typing import Any, Final

from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, SubsetRandomSampler
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

from hotloop.feed.cache.dataset import CachedDataset
from hotloop.feed.cache.order import Indices, batches_of

#: Their order depends on nothing that happens while it is gone through, and draws on no generator but theirs.
_FIXED: Final = (SequentialSampler, RandomSampler, SubsetRandomSampler)

#: As many passes over the data are drawn at once.
_PASSES: Final = 2


def hand_out(iterator: Any, cached: CachedDataset) -> None:
    """Make ``iterator`` take whole batches from ``cached``, where the cache has all samples; else nothing."""
    plain = type(iterator) is _SingleProcessDataLoaderIter and not iterator._pin_memory
    if plain and iterator._auto_collation and cached.is_at_hand() and cached.cache.whole is not None:
        iterator.__class__ = _AtHand
        iterator._cached = cached
        iterator._drew = False


class _AtHand(_SingleProcessDataLoaderIter):  # type: ignore[misc,unused-ignore]
    _cached: CachedDataset
    _drew: bool
    _sampler_iter: Any

    def _next_data(self) -> Any:
        if not self._drew:
            self._sampler_iter = _drawn(self._index_sampler, self._sampler_iter, self._cached)
            self._drew = True
        indices = self._next_index()
        if type(indices) is not Indices:
            return self._cached.gather(indices)
        whole = self._cached.cache.whole
        batch = whole.gather(indices.numbers) if whole is not None else None
        return self._cached.gather(list(indices)) if batch is None else batch


def _drawn(sampler: Any, indices: Any, cached: CachedDataset) -> Any:
    """The indices of each batch; all of a pass drawn at once where that is the same."""
    within: Any = getattr(sampler, "sampler", None)
    if type(sampler) is not BatchSampler or type(within) not in _FIXED:
        return indices
    if getattr(within, "generator", None) is not None:  # the script may draw on it meanwhile
        return indices
    if len(within) > _PASSES * cached.cache.num_items:  # a stream that nobody means to see the end of
        return indices
    return batches_of(sampler) or iter(list(indices))
