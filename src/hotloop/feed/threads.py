"""Batches made by threads of the training process: for work that leaves the interpreter free.

What a thread makes is not copied between processes. A dataset that holds the interpreter (pure Python) would
hold up training.
"""

from __future__ import annotations

import pickle
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final

from torch.utils.data import IterableDataset, default_collate
from torch.utils.data import _utils as torch_utils
from torch.utils.data.dataloader import _BaseDataLoaderIter

from hotloop.feed import budget, pinning
from hotloop.feed.errors import WorkerError
from hotloop.feed.inline import LocalReader, may_be_local
from hotloop.feed.iterating import Iterating
from hotloop.feed.reading import gather_of, is_at_hand
from hotloop.feed.resume import Position, as_tensor

#: Batches of data at hand under way beyond those the threads are at: more would leave the processor's caches.
_WAITING: Final = 1


def refuse(loader: Any) -> None:
    """Refuse what threads cannot do.

    Raises:
        ValueError: the loader's arguments need processes.
    """
    if loader.seed_by == "sample":
        raise ValueError(
            "worker_method='thread' cannot seed by sample: the generators belong to the whole process, "
            "training included; take worker_method='process'"
        )
    if loader.worker_init_fn is not None:
        raise ValueError("worker_method='thread' starts no worker process for worker_init_fn to run in")
    if loader.num_workers > 1 and isinstance(loader.dataset, IterableDataset):
        raise ValueError("an IterableDataset has one position: with worker_method='thread', num_workers=1")


def needs_no_workers(loader: Any) -> bool:
    """Whether every sample lies in a cache or a bake and may be copied in the training process.

    Slots of workers are pinned and watched (``debug``); what is gathered here is not. No code of the user's
    runs: no sample is read, no random number is drawn.
    """
    return (
        loader.worker_method == "beside"
        and gather_of(loader.dataset) is not None
        and loader.batch_sampler is not None
        and loader.collate_fn is default_collate
        and may_be_local(loader)
        and getattr(loader, "in_order", True)
        and not loader.debug
        and not (loader.pin_memory and pinning.can_pin(loader.pin_memory_device or None))
        and is_at_hand(loader.dataset)
    )


class ThreadIterator(Iterating, _BaseDataLoaderIter):  # type: ignore[misc]
    """The iterator of ``worker_method="thread"``, and of ``"beside"`` once all samples are at hand.

    Samples are made as without workers: ``get_worker_info()`` is None, and random transforms draw from the
    generators of this process, in no fixed order. A batch that no thread has begun is made by the caller.
    """

    def _begin(self, loader: Any, resumed: dict[str, Any] | None) -> None:
        self._hung = False
        self._is_stream = self._dataset_kind != 0
        threads = self._num_workers
        self._most_drawn = threads * int(loader.prefetch_factor)
        self._most_begun = self._most_drawn
        if loader.worker_method == "beside":
            threads = max(1, min(threads, int(budget.usable_cores()) - 1))
            self._most_begun = min(self._most_drawn, threads + _WAITING)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="feed")
        self._epoch = resumed["epoch"] if resumed else 0
        self._drawn: deque[tuple[int, Any]] = deque()
        self._begun: deque[tuple[int, Any, Future[Any]]] = deque()
        self._start(loader, resumed)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        super()._reset(loader, first_iter)
        if not first_iter:
            self._drop()
            self._epoch += 1
            self._start(loader, None)

    def _start(self, loader: Any, resumed: dict[str, Any] | None) -> None:
        self._position = Position(loader)
        self._num_drawn = 0
        self._reader = LocalReader(self._reading(loader))
        self._begin_epoch()
        if resumed:
            self._sampler_iter = iter(self._index_sampler)
            self._skip(resumed["position"])
        self._fill()

    def _fill(self) -> None:
        """Draw and begin batches as early as for worker processes."""
        while len(self._drawn) + len(self._begun) < self._most_drawn and self._draw_next():
            pass
        while self._drawn and len(self._begun) < self._most_begun:
            number, index = self._drawn.popleft()
            self._begun.append((number, index, self._pool.submit(self._reader.read, index)))

    def _draw_next(self) -> bool:
        try:
            index = self._draw()
        except StopIteration:
            return False
        self._count(index)
        self._drawn.append((self._num_drawn - 1, index))
        return True

    def _count(self, index: Any) -> None:
        self._position.drew(index, pickle.dumps(index, pickle.HIGHEST_PROTOCOL))
        self._num_drawn += 1

    def _next_data(self) -> Any:
        if not self._begun:
            self._end_epoch()
            raise StopIteration
        number, index, future = self._begun.popleft()
        try:
            batch = self._made(number, index, future)
        except StopIteration:  # an iterable dataset has no more
            self._drop()
            self._end_epoch()
            raise
        except Exception as error:
            self._position.handed_out(number)
            error.add_note(f"in DataLoader thread, batch {number} (samples {index!r:.200})")
            self._fill()
            raise
        self._position.handed_out(number)
        self._fill()
        if self._pin_memory:
            return torch_utils.pin_memory.pin_memory(batch, self._pin_memory_device)
        return batch

    def _made(self, number: int, index: Any, future: Future[Any]) -> Any:
        if not self._is_stream and not self._timeout and future.cancel():
            return self._reader.read(index)
        try:
            return future.result(self._timeout or None)
        except FutureTimeoutError:
            if future.done():
                raise  # the dataset's own
            self._hung = True
            raise WorkerError(
                f"DataLoader timed out after {self._timeout} seconds: "
                f"batch {number} (samples {index!r:.200}) is not made",
                hint="raise timeout if that is slow by nature; py-spy dump --pid shows where a thread stands",
            ) from None

    def _drop(self) -> None:
        for _, _, future in self._begun:
            future.cancel()
        self._begun.clear()
        self._drawn.clear()

    def _end_epoch(self) -> None:
        super()._end_epoch()
        if not self._persistent_workers:
            self._shutdown_workers()

    @property
    def has_ended(self) -> bool:
        """Whether its threads are gone."""
        return self._pool._shutdown

    def _shutdown_workers(self) -> None:
        self._drop()
        own = threading.current_thread() in self._pool._threads
        self._pool.shutdown(wait=not own and not self._hung)

    def state(self) -> dict[str, Any]:
        """Where this iterator is, so that another one can go on from there, with worker processes too."""
        return {
            "position": self._position.state(),
            "base_seed": self._base_seed,
            "epoch": self._epoch,
            "num_workers": self._num_workers,
            "persistent": self._persistent_workers,
            # What was made here needs not be made again by a worker.
            "states": as_tensor(dict.fromkeys(range(self._num_workers), (self._num_drawn, None))),
        }

    def _skip(self, position: dict[str, Any]) -> None:
        for number in range(position["num_done"]):
            index = self._draw_again(number)
            self._count(index)
            if self._is_stream:
                self._reader.read(index)
            self._position.handed_out(number)
        self._position.check(position)
        self._num_yielded = position["num_done"]

    def __del__(self) -> None:
        if not hasattr(self, "_pool"):
            return
        if self.when_left is not None and self.is_under_way and not torch_utils.python_exit_status:
            self.when_left(self.state())
        self._shutdown_workers()
