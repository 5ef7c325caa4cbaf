"""``num_workers=0``: batches made in the training process."""

from __future__ import annotations

from typing import Any

from torch.utils.data import _utils as torch_utils
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

from hotloop.feed.iterating import Iterating
from hotloop.feed.memory import keep_freed_memory
from hotloop.feed.reading import Reader, Reading


def may_be_local(loader: Any) -> bool:
    """Whether a batch made in the training process is the same as one made in a worker."""
    return loader.worker_init_fn is None and not loader.timeout


def local_reader(reading: Reading) -> Reader:
    """Reads batches in this process, whose heap keeps the memory of those that were freed."""
    keep_freed_memory()
    return Reader(
        reading, out=lambda num_bytes: None, around=lambda collate, samples: collate(samples), watch=None
    )


class InlineIterator(Iterating, _SingleProcessDataLoaderIter):  # type: ignore[misc]
    """Torch's single-process iterator, which reads as the workers do."""

    def _begin(self, loader: Any) -> None:
        self._reader = local_reader(self._reading(loader))

    def _next_data(self) -> Any:
        data = self._reader.read(self._draw())
        if self._pin_memory:
            return torch_utils.pin_memory.pin_memory(data, self._pin_memory_device)
        return data
