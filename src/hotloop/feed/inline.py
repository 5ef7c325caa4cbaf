"""``num_workers=0``: batches made in the training process, big ones in memory that is used again."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import _utils as torch_utils
from torch.utils.data import default_collate
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

from hotloop.feed import randomness
from hotloop.feed.collating import Out, stacking
from hotloop.feed.iterating import Iterating
from hotloop.feed.layout import ALIGNMENT
from hotloop.feed.memory import round_up
from hotloop.feed.reading import Reader, Reading
from hotloop.feed.resume import Position
from hotloop.feed.ring import COLLATING
from hotloop.feed.worker import sample_seed

#: Below this malloc hands out memory that is mapped already.
_WORTH_RECYCLING_BYTES: Final = 1 << 20
#: Batches that may be held before new ones get memory of their own.
_SPARE: Final = 4


def may_be_local(loader: Any) -> bool:
    """Whether a batch made in the training process is the same as one made in a worker."""
    return (
        loader.worker_method != "process"
        and loader.seed_by == "worker"
        and loader.worker_init_fn is None
        and not loader.timeout
    )


class Recycler:
    """Memory for one batch after the other; it is used again when nothing of its batch is left.

    One thread makes batches, any may drop them. Beyond ``spare`` batches held, new ones get fresh memory.
    """

    def __init__(self, spare: int = _SPARE, *, debug: bool = False) -> None:
        self._spare = spare
        self._debug = debug
        self._free: list[NDArray[np.uint8]] = []
        self._returned: deque[NDArray[np.uint8]] = deque()  # by whichever thread dropped the last tensor
        self._num_out = 0
        self._memory: NDArray[np.uint8] | None = None
        self._used = 0
        self._wanted = 0

    def out(self, num_bytes: int) -> Out | None:
        """What gives memory for a tensor of so many bytes, None where fresh memory is as good."""
        return self._tensor if num_bytes == 0 or num_bytes >= _WORTH_RECYCLING_BYTES else None

    def close(self) -> None:
        """The batch is made."""
        self._memory = None
        self._used = 0

    def _tensor(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        if self._memory is None:
            self._collect()
        plain = (
            torch.empty(shape, dtype=dtype) if self._num_out >= self._spare and self._memory is None else None
        )
        num_bytes = int(np.prod(shape)) * dtype.itemsize
        if plain is not None or not num_bytes:
            return torch.empty(shape, dtype=dtype) if plain is None else plain
        start = round_up(self._used, ALIGNMENT)
        self._used = start + num_bytes
        self._wanted = max(self._wanted, self._used)
        if self._memory is None:
            self._memory = self._lease()
        if self._used > self._memory.nbytes:
            return torch.empty(shape, dtype=dtype)  # the next batch's memory is larger
        count = num_bytes // dtype.itemsize
        return torch.frombuffer(self._memory, dtype=dtype, count=count, offset=start).view(shape)

    def _lease(self) -> NDArray[np.uint8]:
        while self._free:
            memory = self._free.pop()
            if memory.nbytes >= self._wanted:
                break
        else:
            memory = np.empty(self._wanted, np.uint8)
        self._num_out += 1
        return np.asarray(_Leased(self, memory))

    def _collect(self) -> None:
        while self._returned:
            self._free.append(self._returned.popleft())
            self._num_out -= 1

    def _back(self, memory: NDArray[np.uint8]) -> None:
        if self._debug:
            memory.fill(0xFF)  # as the ring does with its slots
        self._returned.append(memory)


class _Leased:
    """The base of a batch's tensors; gives their memory back when the last of them goes."""

    __slots__ = ("__array_interface__", "_memory", "_recycler")

    def __init__(self, recycler: Recycler, memory: NDArray[np.uint8]) -> None:
        self._recycler = recycler
        self._memory = memory
        self.__array_interface__ = memory.__array_interface__

    def __del__(self) -> None:
        self._recycler._back(self._memory)


class LocalReader:
    """Reads batches in this process, big ones into recycled memory; ``spare`` of them may be held.

    ``note`` is told when samples are collated, ``watch`` goes through the indices of samples.
    """

    def __init__(
        self,
        reading: Reading,
        *,
        spare: int = _SPARE,
        copy: bool,
        debug: bool,
        watch: Callable[[Iterator[Any]], Iterator[Any]] | None = None,
        note: Callable[[int], None] = lambda place: None,
    ) -> None:
        self._recycler = Recycler(spare, debug=debug)
        self._note = note
        out = (lambda num_bytes: None) if copy else self._recycler.out
        self._table = dict(torch_utils.collate.default_collate_fn_map)
        if self._table.get(torch.Tensor) is torch_utils.collate.collate_tensor_fn:
            self._table[torch.Tensor] = stacking(out, alike=True)
        self._reader = Reader(reading, out=out, around=self._around, watch=watch)

    def read(self, index: Any) -> Any:
        """The batch of these indices, collated.

        Raises:
            StopIteration: an iterable dataset has no more.
        """
        try:
            return self._reader.read(index)
        finally:
            self._recycler.close()

    def _around(self, collate: Callable[[Any], Any], samples: Any) -> Any:
        self._note(COLLATING)
        if collate is default_collate:
            return torch_utils.collate.collate(samples, collate_fn_map=self._table)
        return collate(samples)


class InlineIterator(Iterating, _SingleProcessDataLoaderIter):  # type: ignore[misc]
    """Torch's single-process iterator with memory that is used again, and a position to resume from."""

    def _begin(self, loader: Any, resumed: dict[str, Any] | None) -> None:
        self._epoch = resumed["epoch"] if resumed else 0
        self._position = Position(loader)
        self._seeds = loader.seed_by == "sample"
        reading = self._reading(loader)
        self._is_iterable = reading.is_iterable
        watch = self._watch if self._seeds else None
        self._reader = LocalReader(reading, copy=loader.copy, debug=loader.debug, watch=watch)
        self._begin_epoch(loader)
        if resumed:
            self._sampler_iter = iter(self._index_sampler)
            self._skip(resumed["position"])

    def _next_data(self) -> Any:
        number = -1
        try:
            index = self._draw()
            number, first = self._count(index)
            if not self._seeds:
                data = self._reader.read(index)
            else:
                self._first = first
                with randomness.preserved():
                    data = self._reader.read(index)
        except StopIteration:
            self._end_epoch()
            raise
        except Exception:
            if number >= 0:  # drawn and not to be had: the batches after it are what comes next
                self._position.handed_out(number)
            raise
        self._position.handed_out(number)
        if self._pin_memory:
            return torch_utils.pin_memory.pin_memory(data, self._pin_memory_device)
        return data

    def _count(self, index: Any) -> tuple[int, int]:
        first = self._num_samples
        try:
            data = pickle.dumps(index, pickle.HIGHEST_PROTOCOL)
        except Exception:  # what never leaves this process may be anything
            data = b""
        self._position.drew(index, data)
        self._num_samples += len(index) if self._auto_collation else 1
        return self._position.num_done, first

    def _watch(self, indices: Iterator[Any]) -> Iterator[Any]:
        for position, index in enumerate(indices):
            randomness.seed_all(sample_seed(self._base_seed, self._epoch, self._first + position))
            yield index

    def state(self) -> dict[str, Any]:
        """Where this iterator is, so that another one can go on from there."""
        return {
            "position": self._position.state(),
            "base_seed": self._base_seed,
            "epoch": self._epoch,
            "num_workers": 0,
            "persistent": False,
        }

    def _skip(self, position: dict[str, Any]) -> None:
        for number in range(position["num_done"]):
            index = self._draw_again(number)
            self._count(index)
            if self._is_iterable:
                self._reader.read(index)
            self._position.handed_out(number)
        self._position.check(position)
        self._num_yielded = position["num_done"]

    def __del__(self) -> None:
        if self.when_left is not None and self.is_under_way and not torch_utils.python_exit_status:
            self.when_left(self.state())
