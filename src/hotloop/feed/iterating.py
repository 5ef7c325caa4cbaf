"""What the iterators with and without workers share: an epoch that is read, told, and begun again."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final

import torch
from torch.utils.data import _utils as torch_utils
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

from hotloop.feed import randomness
from hotloop.feed.errors import FeedError
from hotloop.feed.memory import keep_freed_memory
from hotloop.feed.reading import Reader, Reading, as_sized
from hotloop.feed.worker import sample_seed

VERSION: Final = 4


class Position:
    """Where an iterator is: how many batches of its epoch it has handed out, in order.

    Made where an epoch begins, before the first index is drawn; the loader keeps the latest one.
    """

    def __init__(self, loader: Any, base_seed: int, epoch: int) -> None:
        self.num_given = 0
        self.is_over = False
        self._of = {"base_seed": base_seed, "epoch": epoch}
        self._random = randomness.capture()
        self._generators = [one.get_state() for one in generators_of(loader)]
        self._samplers = [_sampler_state(one) for one in _samplers_of(loader)]
        loader._position = self

    def state(self) -> dict[str, Any]:
        """Plain data: numbers, lists and uint8 tensors."""
        return {**self._of, "num_given": self.num_given, "start": self._start}

    @cached_property
    def _start(self) -> dict[str, Any]:
        """What the states of all positions of the epoch share; ``torch.load`` takes it without asking."""
        data = pickle.dumps((self._random, self._samplers), pickle.HIGHEST_PROTOCOL)
        return {
            "random": torch.frombuffer(bytearray(data), dtype=torch.uint8),
            "generators": self._generators,
        }


@contextmanager
def beginning_again(loader: Any, start: dict[str, Any]) -> Iterator[None]:
    """The random states of the epoch's beginning while its indices are drawn again; then this process's own.

    Generators the loader or its sampler was given stay where the drawing leaves them.
    """
    random, samplers = pickle.loads(start["random"].numpy().tobytes())  # nosec B301
    with randomness.preserved():
        randomness.restore(random._replace(cuda=()))
        for generator, found in zip(generators_of(loader), start["generators"], strict=True):
            generator.set_state(found)
        for sampler, found in zip(_samplers_of(loader), samplers, strict=True):
            if "own" in found:
                sampler.load_state_dict(found["own"])
            if "epoch" in found and sampler.epoch != found["epoch"]:
                sampler.set_epoch(found["epoch"])
        yield


def generators_of(loader: Any) -> list[torch.Generator]:
    """The generators given to the loader and its samplers, each once."""
    found = [loader.generator, *(getattr(one, "generator", None) for one in _samplers_of(loader))]
    return list({id(one): one for one in found if isinstance(one, torch.Generator)}.values())


def _samplers_of(loader: Any) -> list[Any]:
    found = [loader.batch_sampler, loader.sampler, getattr(loader.batch_sampler, "sampler", None)]
    return list({id(one): one for one in found if one is not None}.values())


def _sampler_state(sampler: Any) -> dict[str, Any]:
    """A sampler's own state: what its ``state_dict`` says, and the epoch it was set to."""
    state = {}
    if hasattr(sampler, "state_dict") and hasattr(sampler, "load_state_dict"):
        state["own"] = sampler.state_dict()
    if hasattr(sampler, "set_epoch") and hasattr(sampler, "epoch"):
        state["epoch"] = sampler.epoch
    return state


class Iterating:
    """Comes before one of torch's iterators among the bases."""

    def __init__(self, loader: Any, resumed: dict[str, Any] | None = None) -> None:
        if resumed is None:
            self._epoch = 0
            super().__init__(loader)  # type: ignore[call-arg]
            self._begin(loader, None)
            return
        self._epoch = resumed["epoch"]
        with beginning_again(loader, resumed["start"]):
            super().__init__(loader)  # type: ignore[call-arg]
        self._base_seed = resumed["base_seed"]
        with beginning_again(loader, resumed["start"]):
            self._begin(loader, resumed)

    def _begin(self, loader: Any, resumed: dict[str, Any] | None) -> None:
        raise NotImplementedError

    def _reading(self: Any, loader: Any) -> Reading:
        return Reading(
            kind=self._dataset_kind,
            dataset=self._dataset,
            auto_collation=self._auto_collation,
            collate_fn=self._collate_fn,
            drop_last=self._drop_last,
            singly=loader.seed_by == "sample",
        )

    def _begin_epoch(self, loader: Any) -> None:
        self._position = Position(loader, self._base_seed, self._epoch)
        self._num_samples = 0

    def _end_epoch(self: Any) -> None:
        self._position.is_over = True

    def _count(self: Any, index: Any) -> int:
        """The number of the batch's first sample in the epoch."""
        first: int = self._num_samples
        self._num_samples += len(index) if self._auto_collation else 1
        return first

    def _draw(self: Any) -> Any:
        """The indices of the next batch; StopIteration where there is none."""
        return as_sized(self._next_index(), self._auto_collation)

    def _skip(self: Any, resumed: dict[str, Any]) -> None:
        """Draw what was drawn before and leave out what was handed out; a stream is read and dropped."""
        if self._dataset_kind:
            for _ in range(resumed["num_given"]):
                with contextlib.suppress(Exception):  # whoever resumed has seen it
                    self._next_data()
        else:
            for number in range(resumed["num_given"]):
                try:
                    self._count(self._draw())
                except StopIteration:
                    raise FeedError(
                        f"the sampler ended after {number} batches: there were more before"
                    ) from None
                self._position.num_given += 1
        self._num_yielded = resumed["num_given"]


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

    def _watch(self, indices: Iterator[Any]) -> Iterator[Any]:
        for position, index in enumerate(indices):
            randomness.seed_all(sample_seed(self._base_seed, self._epoch, self._first + position))
            yield index
