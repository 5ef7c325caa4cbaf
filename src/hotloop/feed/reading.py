"""How a batch is read: by torch's own fetchers, or by a dataset's ``gather`` where it has one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch.utils.data import Subset
from torch.utils.data.dataloader import _DatasetKind, default_collate

from hotloop.feed.collating import Out


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What to read and how, in DataLoader's words. ``singly``: one sample at a time, come what may."""

    kind: int
    dataset: Any
    auto_collation: bool
    collate_fn: Callable[[Any], Any]
    drop_last: bool
    singly: bool = False

    @property
    def is_iterable(self) -> bool:
        """Whether the dataset is asked for the next sample rather than for one by its index."""
        return bool(self.kind == _DatasetKind.Iterable)

    @property
    def gathers(self) -> bool:
        """Whether the dataset hands out whole batches as torch's ``default_collate`` would make them."""
        return (
            self.auto_collation
            and not self.is_iterable
            and not self.singly
            and self.collate_fn is default_collate
            and gather_of(self.dataset) is not None
        )


class Reader:
    """One epoch's reading. Every batch goes through ``fetch`` of torch's fetcher, where observers look.

    ``around(collate, samples)`` runs the collation; ``watch(indices)`` goes through a batch's indices
    where they are read one by one (None: nobody wants to know).
    """

    def __init__(
        self,
        reading: Reading,
        *,
        out: Callable[[int], Out | None],
        around: Callable[[Callable[[Any], Any], Any], Any],
        watch: Callable[[Iterator[Any]], Iterator[Any]] | None,
    ) -> None:
        dataset = reading.dataset
        collate: Callable[[Any], Any] = partial(around, reading.collate_fn)
        if reading.gathers:
            dataset, collate = _Gathering(dataset, out, around), as_it_is
        elif reading.singly:
            dataset = _Singly(dataset)
        self._fetcher = _DatasetKind.create_fetcher(
            reading.kind, dataset, reading.auto_collation, collate, reading.drop_last
        )
        self._one_by_one = (
            reading.auto_collation and not reading.is_iterable and not getattr(dataset, "__getitems__", None)
        )
        self._watch = watch
        self._indices: Any = ()

    def read(self, indices: Any) -> Any:
        """The batch of these indices, collated.

        Raises:
            StopIteration: an iterable dataset has no more.
        """
        if self._one_by_one and self._watch is not None:
            indices = _Watched(indices)
            indices.watch = self._watch
        self._indices = indices
        return self._fetcher.fetch(indices)

    def sample(self, position: int) -> Any:
        """The index at a position of the batch being read."""
        return list.__getitem__(self._indices, position)


class _Watched(list[Any]):
    """A batch's indices; going through them says where one is."""

    __slots__ = ("watch",)
    watch: Callable[[Iterator[Any]], Iterator[Any]]

    def __iter__(self) -> Iterator[Any]:
        return self.watch(super().__iter__())


class _Singly:
    """A dataset that offers nothing but one sample by its index."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __getitem__(self, index: Any) -> Any:
        return self._dataset[index]


class _Gathering:
    """A dataset whose ``__getitems__`` gives the collated batch, in memory at hand."""

    def __init__(
        self,
        dataset: Any,
        out: Callable[[int], Out | None],
        around: Callable[[Callable[[Any], Any], Any], Any],
    ) -> None:
        gather = gather_of(dataset)
        assert gather is not None
        self._gather = gather
        self._out = out
        self._around = around

    def __getitems__(self, indices: Any) -> Any:
        return self._around(lambda wanted: self._gather(wanted, self._out(0)), indices)


def as_sized(index: Any, auto_collation: bool) -> Any:
    """A batch's indices as something with a length: a batch sampler may hand out iterators."""
    return list(index) if auto_collation and not hasattr(index, "__len__") else index


def gather_of(dataset: Any) -> Callable[[Any, Out | None], Any] | None:
    """A dataset's ``gather(indices, out)``, through any chain of ``Subset``; None where there is none.

    The class that has it says ``_serves_loader = True``; other methods only happen to have the name. None too
    if a subclass reads its samples in another way.
    """
    if type(dataset) is Subset:
        inner, chosen = gather_of(dataset.dataset), dataset.indices
        if inner is None:
            return None
        return lambda indices, *rest: inner([chosen[index] for index in indices], *rest)
    for cls in type(dataset).__mro__:
        if "gather" in vars(cls):
            return dataset.gather if vars(cls).get("_serves_loader") is True else None
        if "__getitem__" in vars(cls) or "__getitems__" in vars(cls):
            return None
    return None


def as_it_is(batch: Any) -> Any:
    """What was read is what is wanted."""
    return batch
