"""``Loader``: torch's DataLoader with another way of carrying batches from workers to the training loop."""

from __future__ import annotations

import sys
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, IterDataPipe, MapDataPipe

from hotloop.feed import auto
from hotloop.feed.engine import Engine
from hotloop.feed.errors import FeedError
from hotloop.feed.inline import InlineIterator
from hotloop.feed.resume import VERSION, Position, generators_of
from hotloop.feed.sizing import Sizer

_SEEDS = ("worker", "sample")


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
            random transforms repeat only with ``seed_by="sample"``.
        seed_by: ``worker``: random numbers as with torch, they depend on ``num_workers``. ``sample``: every
            sample of an epoch has a seed of its own, whoever reads it and with however many workers; samples
            are then read one by one.

    Raises:
        ValueError: what torch refuses; an unknown ``seed_by``, or one that the dataset rules out.
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
        seed_by: str = "worker",
    ) -> None:
        if seed_by not in _SEEDS:
            raise ValueError(f"seed_by must be one of {_SEEDS}, not {seed_by!r}")
        if seed_by == "sample" and isinstance(dataset, IterableDataset):
            raise ValueError("seed_by='sample' needs samples with an index: an IterableDataset has none")
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
        self.seed_by = seed_by
        self._position: Position | None = None  # of the iterator made last
        self._resumed: dict[str, Any] | None = None
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
        """Settings and where it was to go on: what belongs to this process's iterators stays here."""
        return {**self.__dict__, "_position": None, "_iterator": None, "_sizer": None}

    # -- iterating -------------------------------------------------------------------------------------------

    def __iter__(self) -> Any:
        kept: Any = self.__dict__["_iterator"]
        if not isinstance(kept, Engine):
            return super().__iter__()
        if kept.has_ended or self._resumed is not None:
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
        resumed, self._resumed = self._resumed, None
        if self._auto:
            return auto.AutoEngine(self, resumed)
        if self.num_workers == 0:
            return InlineIterator(self, resumed)
        self.check_worker_number_rationality()
        return Engine(self, resumed)

    # -- resuming --------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Where the iterator made last is in its epoch: plain data and uint8 tensors.

        The global random generators are the caller's to keep: only those given to the loader or its sampler
        are in it.
        """
        position = self._position
        return {
            "version": VERSION,
            "in_order": getattr(self, "in_order", True),
            "iterator": self._resumed if position is None else None if position.is_over else position.state(),
            "generators": [one.get_state() for one in generators_of(self)],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next ``iter()`` go on where ``state`` was taken: the same samples in the same order.

        Random transforms in workers draw new numbers, unless ``seed_by="sample"``.

        Raises:
            FeedError: it is no state of this version's Loader, or of one with ``in_order=False``.
        """
        if state.get("version") != VERSION:
            raise FeedError(f"not a state of this version's Loader: version {state.get('version')!r}")
        if not state["in_order"]:
            raise FeedError("batches of in_order=False have no order in which another loader could go on")
        for generator, one in zip(generators_of(self), state["generators"], strict=True):
            generator.set_state(one)
        self._resumed, self._position = state["iterator"], None


#: References to an iterator that only its loader knows: the loader's, the local one, the argument's.
_NOBODY_ELSE = 3
