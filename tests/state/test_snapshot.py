"""What shows that a script changed an object between two looks."""

from __future__ import annotations

import functools
import logging
import random
import weakref
from collections import defaultdict
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hotloop.state.snapshot import EXACT, QUICK, Snapshot, changed, generators, snapshot


def taken(*roots: Any) -> Snapshot:
    return snapshot(roots, EXACT)


class Kept:
    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


def dataset() -> Kept:
    return Kept(
        epoch=0,
        sizes=[1, 2, 3],
        mixed=[1, 2.0, "three", None],
        rows=[list(range(2000)), list(range(3))],
        settings={"crop": 4, "nested": {"flip": True, "names": ("a", "b")}},
        inner=Kept(scale=1.0),
        many=list(range(3000)),
        long=[list(range(1500)) for _ in range(3)],
        chosen={1, 2},
    )


CHANGES: dict[str, Any] = {
    "a number": lambda found: setattr(found, "epoch", 1),
    "a number of another type": lambda found: setattr(found, "epoch", 0.0),
    "an item": lambda found: found.sizes.__setitem__(1, 5),
    "an item of another type": lambda found: found.sizes.__setitem__(0, True),
    "an item of a mixed list": lambda found: found.mixed.__setitem__(0, True),
    "one more item": lambda found: found.sizes.append(4),
    "a nested value": lambda found: found.settings["nested"].__setitem__("flip", False),
    "a nested list": lambda found: found.rows[1].append(3),
    "an attribute of an attribute": lambda found: setattr(found.inner, "scale", 2.0),
    "another object alike": lambda found: setattr(found, "inner", Kept(scale=1.0)),
    "a large list that grew": lambda found: found.many.append(0),
    "another large list alike": lambda found: found.rows.__setitem__(0, list(range(2000))),
    "one of several large lists that grew": lambda found: found.long[1].append(0),
    "another among several large lists": lambda found: found.long.__setitem__(2, list(range(1500))),
    "a new attribute": lambda found: setattr(found, "more", None),
    "a set": lambda found: found.chosen.add(3),
}


def test_many_long_lists_are_looked_at_in_part_and_alike() -> None:
    rows = [list(range(4000)) for _ in range(600)]
    before = taken(rows)
    assert before == taken(rows)
    assert sum(len(one.content[-1]) for one in before.entries.values()) < 100_000, "of 2.4 million"
    rows[0][0] = -1
    assert before != taken(rows)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen(change: str) -> None:
    found = dataset()
    before = taken(found, len)
    assert taken(found, len) == before
    CHANGES[change](found)
    assert taken(found, len) != before


def test_an_object_in_the_place_of_one_that_is_gone_is_another() -> None:
    found = Kept(inner=Kept(scale=1.0))
    before = taken(found)
    for _ in range(50):  # the memory of the last one is used again sooner or later
        del found.inner
        found.inner = Kept(scale=1.0)
        assert taken(found) != before


def test_nothing_that_can_be_referred_to_weakly_is_kept_alive() -> None:
    found = SimpleNamespace(inner=Kept(scale=1.0), rows=[Kept(number=1)])
    gone = [weakref.ref(found.inner), weakref.ref(found.rows[0])]
    before = taken(found)
    del found.inner, found.rows[0]
    assert [ref() for ref in gone] == [None, None]
    assert taken(found) != before


NOISE = 0.1
rows = 3  # of this name is an attribute of the dataset as well
options = SimpleNamespace(shift=1.0, lr=0.1)
reads: list[int] = []
log = logging.getLogger(__name__)


def noisy(value: float, factor: float) -> float:
    return value * factor * NOISE


class Curriculum:
    level = 1

    def __init__(self) -> None:
        self.rows, self.weights = np.zeros(8), torch.zeros(8)
        self.transform = functools.partial(noisy, factor=2.0)

    def __getitem__(self, index: int) -> float:
        reads.append(index)
        log.debug("read")
        return self.transform(self.rows[index]) + self._shifted(index)

    def _shifted(self, index: int) -> float:
        return index + options.shift


BESIDE: dict[str, tuple[bool, Any]] = {
    "a global of a function": (True, lambda data: globals().update(NOISE=globals()["NOISE"] + 1)),
    "an option": (True, lambda data: setattr(options, "shift", options.shift + 1)),
    "an attribute of the class": (True, lambda data: setattr(Curriculum, "level", Curriculum.level + 1)),
    "an array in place": (True, lambda data: data.rows.__setitem__(3, 1.0)),
    "a tensor in place": (True, lambda data: data.weights.add_(1)),
    "what reading it appends to": (False, lambda data: data[0]),
    "another option": (False, lambda data: setattr(options, "lr", options.lr / 2)),
    "a global of the name of an attribute": (False, lambda data: globals().update(rows=4)),
    "loggers": (False, lambda data: logging.getLogger(f"{__name__}.more").debug("read")),
}


@pytest.mark.parametrize("change", BESIDE)
def test_a_change_of_what_its_code_reads_is_seen(change: str) -> None:
    data = Curriculum()
    data[0]
    before = taken(data)
    seen, do = BESIDE[change]
    do(data)
    assert (taken(data) != before) is seen


class Slotted:
    """What has attributes and no dictionary."""

    __slots__ = ("scale", "unset")

    def __init__(self) -> None:
        self.scale = 1


def test_attributes_in_slots_and_the_memory_of_a_tensor_are_seen() -> None:
    slotted, array = Slotted(), np.zeros(4)
    held = {"slotted": slotted, "tensor": torch.from_numpy(array)}
    before = taken(held)
    assert taken(held) == before
    slotted.scale = 2
    now = taken(held)
    assert now != before
    array[0] = 1
    assert taken(held) != now


def test_no_code_of_the_script_runs_when_an_object_is_looked_at() -> None:
    asked: list[str] = []

    class Lazy(dict[str, int]):
        def items(self) -> Any:
            asked.append("items")
            return super().items()

        def __len__(self) -> int:
            asked.append("len")
            return 0

    class Slotted:
        __slots__ = ("size",)

        def __getattr__(self, name: str) -> Any:
            asked.append(name)
            raise AttributeError(name)

    class Data:
        def __init__(self) -> None:
            self.lazy, self.slotted, self.kinds = Lazy(a=1), Slotted(), defaultdict(int, a=1)

        def __len__(self) -> int:
            asked.append("len")
            return 3

        @property
        def drawn(self) -> int:
            asked.append("drawn")
            return 3

    for limits in (QUICK, EXACT):
        found = snapshot(Data(), limits)
        assert {"lazy", "lazy['a']", "slotted", "slotted.size", "kinds['a']"} <= found.entries.keys()
    assert not asked


def test_names_of_what_changed_leave_out_what_is_opened_when_it_is_needed() -> None:
    data = Kept(file=None, crop=1, rows=[1, 2], large=np.zeros(1 << 20), cfg={"size": 1}, cache={})
    before = snapshot(data)
    data.file, data.crop, data.rows[0], data.large[:] = object(), 2, 5, 1
    data.cfg["size"], data.cache[3] = 2, 3
    assert sorted(changed(before, snapshot(data))) == ["cfg['size']", "crop", "large", "rows"]


def test_a_look_is_limited() -> None:
    data = Kept(rows=[Kept(number=number, inner=[number]) for number in range(60)] * 60)
    limits = replace(QUICK, values=100, items=5000)
    found = snapshot(data, limits)
    assert len(found.entries) < 5000
    assert not found.complete


def test_generators_that_an_object_holds_are_found() -> None:
    data = Kept(rng=np.random.default_rng(0), inner=Kept(own=torch.Generator()), other=random.Random(1))
    found = generators(data)
    assert {id(one) for one in found} == {id(data.rng), id(data.inner.own), id(data.other)}
    before = taken(data)
    data.rng.random()
    assert taken(data) == before


def test_a_look_is_seen_by_no_dispatch_mode() -> None:
    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, *_: Any) -> Any:
            raise AssertionError

    held = Kept(x=torch.zeros(3))
    with Seen():
        assert snapshot(held).entries["x"].content is not None
