"""What shows that a script changed an object between two epochs."""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from hotloop.remedy.live.state import State


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


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen(change: str) -> None:
    found = dataset()
    before = State(found, len)
    assert State(found, len) == before
    CHANGES[change](found)
    assert State(found, len) != before


def test_an_object_in_the_place_of_one_that_is_gone_is_another() -> None:
    found = Kept(inner=Kept(scale=1.0))
    before = State(found)
    for _ in range(50):  # the memory of the last one is used again sooner or later
        del found.inner
        found.inner = Kept(scale=1.0)
        assert State(found) != before


def test_nothing_that_can_be_referred_to_weakly_is_kept_alive() -> None:
    found = SimpleNamespace(inner=Kept(scale=1.0), rows=[Kept(number=1)])
    gone = [weakref.ref(found.inner), weakref.ref(found.rows[0])]
    before = State(found)
    del found.inner, found.rows[0]
    assert [ref() for ref in gone] == [None, None]
    assert State(found) != before
