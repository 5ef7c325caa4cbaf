"""``Loader``: torch's DataLoader with another way of carrying batches from workers to the training loop."""

from __future__ import annotations

import sys
import warnings
import weakref
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, IterDataPipe, MapDataPipe

from hotloop.feed import auto
from hotloop.feed.engine import Engine
from hotloop.feed.errors import FeedError
from hotloop.feed.inline import InlineIterator
from hotloop.feed.resume import VERSION, generators_of
from hotloop.feed.ring import Ring
from hotloop.feed.sizing import Sizer
from hotloop.feed.threads import ThreadIterator, needs_no_workers, refuse
from hotloop.feed.tree import flatten

_METHODS = ("auto", "process", "thread", "beside")
_SEEDS = ("worker", "sample")


class Loader(DataLoader):  # type: ignore[misc]
    """A drop-in for ``torch.utils.data.DataLoader``: the same arguments, the same batches bit for bit.

    A batch's tensors lie in a recycled slot of shared memory and stay valid as long as anything holds them:
    the slot is written again when the last tensor (or view, or array made from one) is gone. Who keeps many
    batches gets copies; a copy to the device on a stream of your own needs the batch until it is done.

    Args:
        copy: Always hand out copies.
        debug: Fill slots that are given back with 0xFF (not a number), and raise where a batch that was given
            back is still held when its slot is about to be written again.
        num_workers: As torch's; or ``"auto"``: begin with one worker, measure, and change their number and
            their batches ahead while it runs; where none help, the training process makes the batches
            (:attr:`sizing` says what was chosen and why). Which worker makes a batch is then not fixed:
            random transforms repeat only with ``seed_by="sample"``.
        worker_method: ``process``, ``thread`` (for datasets that leave the interpreter free and may be read
            by several threads at once), or ``auto``: processes, or the training process itself if
            ``num_workers="auto"``. ``beside``: processes, and none once all samples lie in a cache or a bake
            with nothing left to do afterwards: a thread of this process then copies the batches. More
            batches a second where little runs between them, fewer where Python holds the interpreter.
        seed_by: ``worker``: random numbers as with torch, they depend on ``num_workers``. ``sample``: every
            sample of an epoch has a seed of its own, whoever reads it and with however many workers; samples
            are then read one by one.

    Raises:
        ValueError: what torch refuses; an unknown ``worker_method`` or ``seed_by``, or one that the dataset
            or the other arguments rule out.
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
        worker_method: str = "auto",
        seed_by: str = "worker",
    ) -> None:
        if worker_method not in _METHODS:
            raise ValueError(f"worker_method must be one of {_METHODS}, not {worker_method!r}")
        if seed_by not in _SEEDS:
            raise ValueError(f"seed_by must be one of {_SEEDS}, not {seed_by!r}")
        if seed_by == "sample" and isinstance(dataset, IterableDataset):
            raise ValueError("seed_by='sample' needs samples with an index: an IterableDataset has none")
        self._auto = num_workers == "auto"
        if isinstance(num_workers, str) and not self._auto:
            raise ValueError(f"num_workers must be a number or 'auto', not {num_workers!r}")
        self.copy = copy
        self.debug = debug
        self.worker_method = worker_method
        self.seed_by = seed_by
        self._rings: weakref.WeakSet[Ring] = weakref.WeakSet()
        self._latest: Any = None  # weak reference to the iterator made last
        self._left: dict[str, Any] | None = None  # where it was, if it was dropped within its epoch
        self._num_iterators = 0
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
        if worker_method == "thread":
            refuse(self)
        if self._auto:
            auto.refuse(self)

    @property
    def sizing(self) -> Sizer | None:
        """What ``num_workers="auto"`` has chosen so far and why, to print; None without it."""
        if self._auto and self._sizer is None:
            self._sizer = auto.sizer_for(self)
        return self._sizer

    def __getstate__(self) -> dict[str, Any]:
        """Settings and where it was to go on: what belongs to this process's iterators stays here."""
        own = {"_rings": None, "_latest": None, "_iterator": None, "_sizer": None}
        return {**self.__dict__, **own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _rings=weakref.WeakSet())

    # -- iterating -------------------------------------------------------------------------------------------

    def __iter__(self) -> Any:
        kept: Any = self.__dict__["_iterator"]
        if not isinstance(kept, Engine | ThreadIterator):
            return super().__iter__()
        if kept.has_ended or self._resumed is not None:
            self._iterator = None
            kept._shutdown_workers()
            return super().__iter__()
        if type(kept) is Engine and not kept.is_under_way and needs_no_workers(self):
            self._iterator, self._seed_again = None, kept._base_seed
            kept._shutdown_workers()
            try:
                return super().__iter__()
            finally:
                self._seed_again = None
        if not kept.is_under_way or sys.getrefcount(kept) <= _NOBODY_ELSE:
            return super().__iter__()
        self._iterator = None  # its epoch goes on in somebody's hands: this is another one
        self._seed_again = kept._base_seed
        try:
            return super().__iter__()
        finally:
            self._iterator, self._seed_again = kept, None

    def _get_iterator(self) -> Any:
        if isinstance(self.dataset, IterDataPipe | MapDataPipe):
            _say_once(
                "Loader leaves data pipes to torch's own iterator: their graph is seeded and sharded there"
            )
            return super()._get_iterator()
        resumed, self._resumed = self._resumed, None
        iterator: Any
        if self._auto:
            iterator = auto.AutoEngine(self, resumed)
        elif self.num_workers == 0:
            iterator = InlineIterator(self, resumed)
        elif self.worker_method == "thread" or needs_no_workers(self):
            iterator = ThreadIterator(self, resumed)
        else:
            self.check_worker_number_rationality()
            iterator = Engine(self, resumed)
        self._num_iterators += 1
        self._left = None
        self._latest = weakref.ref(iterator)
        iterator.when_left = partial(_left, weakref.ref(self), self._num_iterators)
        return iterator

    # -- batches ---------------------------------------------------------------------------------------------

    def give_back(self, batch: Any) -> None:
        """Free the slot of a batch now, whoever still holds it: its tensors must not be read any more.

        Copies, and batches that have no slot, are left as they are.
        """
        for leaf in flatten(batch)[0]:
            address = _address(leaf)
            lease = next((found for ring in list(self._rings) if (found := ring.find(address))), None)
            if lease is not None:
                lease.give_back()
                return

    # -- resuming --------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Where the iterator made last is in its epoch: plain data and uint8 tensors.

        The global random generators are the caller's to keep: only those given to the loader or its sampler
        are in it.
        """
        iterator = self._latest() if self._latest is not None else None
        state: dict[str, Any] = {"version": VERSION, "seed_by": self.seed_by, "iterator": None}
        if iterator is not None and iterator.is_under_way:
            state["iterator"] = iterator.state()
        elif iterator is None:
            state["iterator"] = self._resumed or self._left
        state["generators"] = [one.get_state() for one in generators_of(self)]
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next ``iter()`` go on where ``state`` was taken.

        Raises:
            FeedError: it was taken with settings under which other random numbers would be drawn.
        """
        if state.get("version") != VERSION:
            raise FeedError(f"not a state of this version's Loader: version {state.get('version')!r}")
        found = state["iterator"]
        settings = (found["num_workers"], state["seed_by"]) if found is not None else None
        own = ("auto" if self._auto else self.num_workers, self.seed_by)
        if settings is not None and settings != own and (settings[1], own[1]) != ("sample", "sample"):
            raise FeedError(
                f"the state was taken with num_workers={settings[0]} and seed_by={settings[1]!r}, this "
                f"loader has num_workers={own[0]} and seed_by={own[1]!r}: random transforms would not go on "
                "as they were",
                hint="resume with the same, or use seed_by='sample' from the start",
            )
        if found is not None and self.seed_by == "sample" and found["persistent"] != self.persistent_workers:
            raise FeedError(
                f"the state was taken with persistent_workers={found['persistent']}, this loader has "
                f"{self.persistent_workers}: the samples of later epochs would get other seeds",
                hint="resume with the same",
            )
        for generator, one in zip(generators_of(self), state["generators"], strict=True):
            generator.set_state(one)
        self._resumed = found
        self._latest = self._left = None
        self._num_iterators += 1


#: References to an iterator that only its loader knows: the loader's, the local one, the argument's.
_NOBODY_ELSE = 3

_said: set[str] = set()


def _left(loader: weakref.ref[Loader], number: int, state: dict[str, Any]) -> None:
    """An iterator was dropped within its epoch (``break``): its loader can still tell where it was."""
    owner = loader()
    if owner is not None and owner._num_iterators == number:
        owner._left = state


def _say_once(text: str) -> None:
    if text not in _said:
        _said.add(text)
        warnings.warn(text, stacklevel=4)


def _address(leaf: Any) -> int:
    if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and leaf.device.type == "cpu":
        return int(leaf.data_ptr())
    if isinstance(leaf, np.ndarray):
        return int(leaf.__array_interface__["data"][0])
    return -1
