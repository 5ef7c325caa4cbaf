"""``Loader``: torch's DataLoader with another way of carrying batches from workers to the training loop."""

from __future__ import annotations

import sys
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, IterDataPipe, MapDataPipe

from hotloop.feed import auto
from hotloop.feed.engine import Engine
from hotloop.feed.inline import InlineIterator
from hotloop.feed.sizing import Sizer


class Loader(DataLoader):  # type: ignore[misc]
    """A drop-in for ``torch.utils.data.DataLoader``: the same arguments, the same batches bit for bit.

    A batch's tensors lie in a recycled slot of shared memory and stay valid as long as anything holds them:
    the slot is written again when the last tensor (or view, or array made from one) is gone. Who keeps many
    batches gets copies; a copy to the device on a stream of your own needs the batch until it is done.

    Args:
        copy: Always hand out copies.
        debug: Fill slots that nothing holds any more with 0xFF (not a number).
        num_workers: As torch's; or ``"auto"``: begin with one worker, measure, and change their number and
            their batches ahead while it runs; where none help, the training process makes the batches
            (:attr:`sizing` says what was chosen and why). Which worker makes a batch is then not fixed:
            random transforms differ from run to run.

    Raises:
        ValueError: what torch refuses, and ``"auto"`` for an iterable dataset.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int | str = 0,
        collate_fn: Any = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Any = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        copy: bool = False,
        debug: bool = False,
    ) -> None:
        self._auto = num_workers == "auto"
        if self._auto and isinstance(dataset, IterableDataset):
            raise ValueError(
                "num_workers='auto' needs a dataset with indices: an IterableDataset divides its samples by "
                "the number of workers, which must not change while it is read"
            )
        if isinstance(num_workers, str) and not self._auto:
            raise ValueError(f"num_workers must be a number or 'auto', not {num_workers!r}")
        self.copy = copy
        self.debug = debug
        self._seed_again: int | None = None  # torch's persistent workers have one seed for all epochs
        extra = {} if in_order else {"in_order": False}  # torch 2.6 has it, a subclass may not
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            1 if self._auto else num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            **extra,
        )
        self._sizer: Sizer | None = None

    @property
    def sizing(self) -> Sizer | None:
        """What ``num_workers="auto"`` has chosen so far and why, to print; None without it."""
        if self._auto and self._sizer is None:
            self._sizer = auto.sizer_for(self)
        return self._sizer

    def __getstate__(self) -> dict[str, Any]:
        """Settings: what belongs to this process's iterators stays here."""
        return {**self.__dict__, "_iterator": None, "_sizer": None}

    def __iter__(self) -> Any:
        kept: Any = self.__dict__["_iterator"]
        if not isinstance(kept, Engine):
            return super().__iter__()
        if kept.has_ended:
            self._iterator = None
            kept._shutdown_workers()
        elif kept.is_under_way and sys.getrefcount(kept) > _NOBODY_ELSE:
            self._iterator = None  # its epoch goes on in somebody's hands: this is another one
            self._seed_again = kept._base_seed
            try:
                return super().__iter__()
            finally:
                self._iterator, self._seed_again = kept, None
        return super().__iter__()

    def _get_iterator(self) -> Any:
        if isinstance(self.dataset, IterDataPipe | MapDataPipe):
            return super()._get_iterator()  # which seeds and shards their graph
        if self._auto:
            return auto.AutoEngine(self)
        if self.num_workers == 0:
            return InlineIterator(self)
        self.check_worker_number_rationality()
        return Engine(self)


#: References to an iterator that only its loader knows: the loader's, the local one, the argument's.
_NOBODY_ELSE = 3
