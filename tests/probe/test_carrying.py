"""What samples take from those made before them, told from the source of the dataset's class."""

from __future__ import annotations

import collections
import random
from typing import Any

import numpy as np
import pytest
from torch.utils.data import Dataset

from hotloop.probe.carrying import making_of, writes_of
from hotloop.probe.identity import code_place


class Plain(Dataset[Any]):
    def __init__(self) -> None:
        self.x: Any = np.zeros(8)
        self.file: Any = None
        self.path = ""
        self.calls = self.hits = 0
        self.last: Any = None
        self.cache: dict[Any, Any] = {}
        self.order: list[Any] = []

    def __len__(self) -> int:
        return 8

    def load(self, path: str) -> Any:
        return np.zeros(len(path))


class Counts(Plain):
    def __getitem__(self, i: int) -> Any:
        x = self.x[i]
        self.calls += 1
        if self.calls % 5 == 0 and self.last is not None:
            x = (x + self.last) / 2
        self.last = x
        return x


class Averages(Plain):
    def __getitem__(self, i: int) -> Any:
        if self.last is None:
            self.last = self.x[i]
        else:
            self.last = 0.9 * self.last + self.x[i]
        return self.x[i] - self.last


class Sequence(Plain):
    def __getitem__(self, i: int) -> Any:
        return self._next()

    def _next(self) -> Any:
        at = self.calls
        self.calls = (self.calls + 1) % len(self.x)
        return self.x[at]


class Takes(Plain):
    def __getitem__(self, i: int) -> Any:
        return self.x[self.order.pop()]


class Window(Plain):
    def __getitem__(self, i: int) -> Any:
        self.order.append(self.x[i])
        return np.mean(self.order[-3:])


class Seen(Plain):
    def __getitem__(self, i: int) -> Any:
        self.cache[i] += 1
        return self.x[i] * self.cache[i]


class Cached(Plain):
    def __getitem__(self, i: int) -> Any:
        if i in self.cache:
            self.hits += 1
            return self.cache[i]
        self.cache[i] = value = self.x[i] * 2
        self.order.append(i)
        if len(self.order) > 4:
            del self.cache[self.order.pop(0)]
        return value


class CachedByAnotherName(Plain):
    def __getitem__(self, i: int) -> Any:
        cache = self.cache
        if i not in cache:
            cache[i] = self.x[i] * 2
        return cache[i]


class Lazy(Plain):
    def __getitem__(self, i: int) -> Any:
        if self.file is None:
            self._open()
        return self.file[i]

    def _open(self) -> None:
        self.file = self.load("file")


class LazyOr(Plain):
    def __getitem__(self, i: int) -> Any:
        self.file = self.file or self.load("file")
        return self.file[i]


class LazyByName(Plain):
    def __getitem__(self, i: int) -> Any:
        if not hasattr(self, "handle"):
            self.handle = self.load("file")
        return self.handle[i]


class LazyTried(Plain):
    def __getitem__(self, i: int) -> Any:
        try:
            return self.file[i]
        except TypeError:
            self.file = self.load("file")
            return self.file[i]


class LazyProperty(Plain):
    @property
    def handle(self) -> Any:
        if self.file is None:
            self.file = self.load("file")
        return self.file

    def __getitem__(self, i: int) -> Any:
        return self.handle[i]


class Shards(Plain):
    def __getitem__(self, i: int) -> Any:
        path = str(i // 4)
        if path != self.path:
            self.file = self.load(path)
        self.path = path
        return self.file[i % 4]


class ShardsInAName(Plain):
    def __getitem__(self, i: int) -> Any:
        path = str(i // 4)
        if path == self.path:
            shard = self.file
        else:
            shard = self.file = self.load(path)
            self.path = path
        return shard[i % 4]


class Scratch(Plain):
    def __getitem__(self, i: int) -> Any:
        self.last = self.x[i]
        self.last = self.last * 2
        self.calls = 0
        for _ in range(3):
            self.calls += 1
        return self._of_last() + self.calls

    def _of_last(self) -> Any:
        return self.last + 1


class Reports(Plain):
    def __getitem__(self, i: int) -> Any:
        self.calls += 1
        self.order.append(i)
        if self.calls % 100 == 0:
            print(self.calls, i, self.order[-1])
            self.cache.clear()
        if self.hits > 10:
            raise RuntimeError(f"after {self.calls}")
        return self.x[i]


class Reopens(Plain):
    def __getitem__(self, i: int) -> Any:
        self.calls += 1
        if self.file is None or self.calls % 1000 == 0:
            self.file = self.load("file")
        return self.file[i]


class ReturnsKept(Plain):
    def _file(self) -> Any:
        if self.file is not None:
            return self.file
        self.file = self.load("file")
        return self.file

    def __getitem__(self, i: int) -> Any:
        return self._file()[i]


class ReturnsKeptOutOfWith(Plain):
    lock: Any

    def __getitem__(self, i: int) -> Any:
        with self.lock:
            if self.file is not None:
                return self.file[i]
            self.file = self.load("file")
        return self.file[i]


class ReturnsKeptBeforeWith(Plain):
    lock: Any

    def _file(self) -> Any:
        if self.file is None:
            with self.lock:
                if self.file:
                    return self.file
                self.file = self.load("file")
        return self.file

    def __getitem__(self, i: int) -> Any:
        return self._file()[i]


class ReturnsKeptShard(Plain):
    def _shard(self, path: str) -> Any:
        if self.path == path and self.file is not None:
            return self.file
        self.file = self.load(path)
        self.path = path
        return self.file

    def __getitem__(self, i: int) -> Any:
        return self._shard(str(i // 4))[i % 4]


class ReturnsKeptOfProcess(Plain):
    process = 0

    def __getitem__(self, i: int) -> Any:
        if self.file is not None and self.process == hash("pid"):
            return self.file[i]
        self.process = hash("pid")
        self.file = self.load("file")
        return self.file[i]


class ReturnsKeptByWalrus(Plain):
    def __getitem__(self, i: int) -> Any:
        if (file := self.file) is not None:
            return file[i]
        self.file = file = self.load("file")
        return file[i]


class ReturnsKeptByName(Plain):
    def __getitem__(self, i: int) -> Any:
        file = getattr(self, "file", None)
        if file is not None:
            return file[i]
        self.file = self.load("file")
        return self.file[i]


class KeptByName(Plain):
    def __getitem__(self, i: int) -> Any:
        file = self.file
        if file is None:
            file = self.file = self.load("file")
        return file[i]


class ReturnsKeptIn(Plain):
    def __getitem__(self, i: int) -> Any:
        if i in self.cache:
            return self.cache[i]
        self.last = self.load("file")
        value = self.last[i]
        self.cache[i] = value
        return value


class ReturnsKeptRange(Plain):
    start = stop = 0

    def __getitem__(self, i: int) -> Any:
        if not self.start <= i < self.stop:
            self.file, self.start, self.stop = self.load(str(i)), i, i + 4
            return self.file[0]
        return self.file[i - self.start]


class ReturnsKeptProperty(Plain):
    @property
    def handle(self) -> Any:
        if hasattr(self, "_handle"):
            return self._handle
        self._handle = self.load("file")
        return self._handle

    def __getitem__(self, i: int) -> Any:
        return self.handle[i]


class ReturnsTried(Plain):
    def _file(self) -> Any:
        try:
            return self.handle
        except AttributeError:
            pass
        self.handle = self.load("file")
        return self.handle

    def __getitem__(self, i: int) -> Any:
        return self._file()[i]


class ReturnsTriedHandler(Plain):
    def _file(self) -> Any:
        try:
            return self.handle
        except AttributeError:
            self.handle = self.load("file")
            return self.handle

    def __getitem__(self, i: int) -> Any:
        return self._file()[i]


class ReturnsList(Plain):
    def _rows(self) -> Any:
        if self.order:
            return self.order
        for one in self.load("file"):
            self.order.append(one)
        return self.order

    def __getitem__(self, i: int) -> Any:
        return self._rows()[i]


class ElseKept(Plain):
    def __getitem__(self, i: int) -> Any:
        if self.file is None:
            self.file = self.load("file")
        else:
            return self.file[i]
        return self.file[i]


class BytesBound(Plain):
    held = 0
    limit = 100

    def __getitem__(self, i: int) -> Any:
        if i in self.cache:
            return self.cache[i]
        image = self.x[i] * 2
        if self.held >= self.limit:
            return image
        self.cache[i] = image
        self.held += image.nbytes
        return image


class Mixes(Plain):
    """The other way of each is what a sample depends on that was made before."""

    def __getitem__(self, i: int) -> Any:
        x = self.x[i]
        if self.last is None:
            self.last = x
            return x
        mixed = (x + self.last) / 2
        self.last = x
        return mixed


class MixesAtRandom(Plain):
    def __getitem__(self, i: int) -> Any:
        x = self.x[i]
        if self.last is not None and np.random.rand() < 0.5:
            return (x + self.last) / 2
        self.last = x
        return x


class MixesElse(Plain):
    def __getitem__(self, i: int) -> Any:
        x = self.x[i]
        y = x
        if self.last is not None:
            y = (x + self.last) / 2
            self.last = x
        else:
            self.last = x
        return y


class MixesInHelper(Plain):
    def _swap(self, x: Any) -> Any:
        if self.last is None:
            self.last = x
            return x
        old = self.last
        self.last = x
        return old

    def __getitem__(self, i: int) -> Any:
        return self.x[i] + self._swap(self.x[i])


class Pool(Plain):
    def __getitem__(self, i: int) -> Any:
        if len(self.order) < 4:
            self.order.append(self.x[i])
            return self.x[i]
        old = self.order.pop(0)
        self.order.append(self.x[i])
        return old


class Harder(Plain):
    """A curriculum by its own counter."""

    def __getitem__(self, i: int) -> Any:
        self.calls += 1
        if self.calls < 100:
            return self.x[0]
        return self.x[i]


class BytesDecide(BytesBound):
    def __getitem__(self, i: int) -> Any:
        image = self.x[i] * 2
        if self.held >= self.limit:
            return image
        self.held += image.nbytes
        image += 1
        return image


class Hands(Plain):
    def __getitem__(self, i: int) -> Any:
        return fill(self, i)


def fill(data: Any, i: int) -> Any:
    data.last = i
    return data.x[i]


@pytest.mark.parametrize(
    ("kind", "carried"),
    [
        (Counts, ("calls", "last")),
        (Averages, ("last",)),
        (Sequence, ("calls",)),
        (Takes, ("order",)),
        (Window, ("order",)),
        (Seen, ("cache",)),
        (Mixes, ("last",)),
        (MixesAtRandom, ("last",)),
        (MixesElse, ("last",)),
        (MixesInHelper, ("last",)),
        (Pool, ("order",)),
        (Harder, ("calls",)),
        (BytesDecide, ("held",)),
    ],
)
def test_what_carries_from_sample_to_sample_is_named(kind: type, carried: tuple[str, ...]) -> None:
    making = making_of(kind)
    assert making is not None
    assert making.carried == carried


@pytest.mark.parametrize(
    "kind",
    [
        Cached, CachedByAnotherName, Lazy, LazyOr, LazyByName, LazyTried, LazyProperty, Shards, ShardsInAName,
        Scratch, Reports, Reopens, ReturnsKept, ReturnsKeptOutOfWith, ReturnsKeptBeforeWith, ReturnsKeptShard,
        ReturnsKeptOfProcess, ReturnsKeptByWalrus, ReturnsKeptByName, KeptByName, ReturnsKeptIn,
        ReturnsKeptRange, ReturnsKeptProperty, ReturnsTried, ReturnsTriedHandler, ReturnsList, ElseKept,
        BytesBound,
    ],
)  # fmt: skip
def test_what_carries_nothing_is_left_alone(kind: type) -> None:
    making = making_of(kind)
    assert making is not None
    assert making.carried == ()
    assert not making.handed_on


def test_what_making_a_sample_reads_and_writes_is_told() -> None:
    cached, renamed = making_of(Cached), making_of(CachedByAnotherName)
    assert cached is not None
    assert renamed is not None
    assert {"cache", "x"} <= cached.reads
    assert {"cache", "order", "hits"} == cached.writes
    assert "cache" in renamed.writes
    assert writes_of(Lazy, "_open") == {"file"}


def test_a_class_that_hands_itself_on_may_be_written_to_elsewhere() -> None:
    making = making_of(Hands)
    assert making is not None
    assert making.handed_on
    assert making_of(collections.OrderedDict) is None


class Fills(Plain):
    def __getitem__(self, i: int) -> Any:
        np.take(self.x, i, out=self.last)
        np.copyto(self.file[i], self.x[i])
        np.add.at(self.cache, i, 1)
        random.shuffle(self.order)
        return np.mean(self.x)


def test_functions_that_write_to_what_they_are_given_are_known() -> None:
    making = making_of(Fills)
    assert making is not None
    assert making.writes == {"last", "file", "cache", "order"}


class Anything:
    """Has every attribute."""

    def __getattr__(self, name: str) -> Any:
        return Anything()


class Settings(Lazy):
    config = Anything()


def test_an_attribute_that_has_every_attribute_is_no_method() -> None:
    making = making_of(Settings)
    assert making is not None
    assert making.carried == ()
    assert code_place(Anything()) == (None, None)


class Augments(Plain):
    transform: Any

    def __getitem__(self, i: int) -> Any:
        self.transform.seed = i
        self.order[0].set_size(i)
        for each in self.cache:
            each.start(i)
        return self.file(self.x[i])


def test_what_is_done_to_the_objects_that_a_dataset_holds_is_told() -> None:
    making = making_of(Augments)
    assert making is not None
    assert making.beneath == {("transform", "seed"), ("order", ""), ("cache", "start")}
