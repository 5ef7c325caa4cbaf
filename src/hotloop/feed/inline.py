"""``num_workers=0``: batches made in the training process, and a position to resume from."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import _utils as torch_utils
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

from hotloop.feed import randomness
from hotloop.feed.iterating import Iterating
from hotloop.feed.memory import keep_freed_memory
from hotloop.feed.reading import Reader, Reading
from hotloop.feed.worker import sample_seed


def may_be_local(loader: Any) -> bool:
    """Whether a batch made in the training process is the same as one made in a worker."""
    return loader.seed_by == "worker" and loader.worker_init_fn is None and not loader.timeout


def local_reader(
    reading: Reading, *, watch: Callable[[Iterator[Any]], Iterator[Any]] | None = None
) -> Reader:
    """Reads batches in this process, whose heap keeps the memory of those that were freed."""
    keep_freed_memory()
    return Reader(
        reading, out=lambda num_bytes: None, around=lambda collate, samples: collate(samples), watch=watch
    )


class InlineIterator(Iterating, _SingleProcessDataLoaderIter):  # type: ignore[misc]
    """Torch's single-process iterator with a position to resume from."""

    def _begin(self, loader: Any, resumed: dict[str, Any] | None) -> None:
        self._seeds = loader.seed_by == "sample"
        self._reader = local_reader(self._reading(loader), watch=self._watch if self._seeds else None)
        self._begin_epoch(loader)
        if resumed:
            self._sampler_iter = iter(self._index_sampler)
            self._skip(resumed)

    def _next_data(self) -> Any:
        try:
            index = self._draw()
            self._first = self._count(index)
            self._position.num_given += 1  # one that cannot be had counts too: what comes next is after it
            with randomness.preserved() if self._seeds else contextlib.nullcontext():
                data = self._reader.read(index)
        except StopIteration:
            self._end_epoch()
            raise
        if self._pin_memory:
            return torch_utils.pin_memory.pin_memory(data, self._pin_memory_device)
        return data

    def _count(self, index: Any) -> int:
        """The number of the batch's first sample in the epoch."""
        first = self._num_samples
        self._num_samples += len(index) if self._auto_collation else 1
        return int(first)

    def _watch(self, indices: Iterator[Any]) -> Iterator[Any]:
        for position, index in enumerate(indices):
            randomness.seed_all(sample_seed(self._base_seed, self._epoch, self._first + position))
            yield index
