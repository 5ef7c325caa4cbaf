"""A bake knows what it was made from: what changes is named, what does not matter is not."""

from __future__ import annotations

import functools
import importlib
import itertools
import os
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bake_datasets import Counting, Given, Images, Rows

from hotloop.feed import Baked, StaleBakeError, bake
from hotloop.feed.identity import fingerprint
from hotloop.feed.identity.fingerprint import digest_of as cache_fingerprint
from hotloop.feed.identity.ingredients import Ingredients

MODULE = """
import json
import numpy as np
import HELPERS
from HELPERS import Add

SIDE = 4
SHIFT = Add(1)

def resize(image, side):
    return image[:side, :side]

class Crop:
    def __init__(self, side):
        self.side = side
    def __call__(self, image):
        return resize(image, self.side)

class Pictures:
    def __init__(self, transform):
        self.transform = transform
    def __len__(self):
        return 6
    def __getitem__(self, index):
        value = SHIFT(HELPERS.shrink(index)) + len(json.dumps(index))
        return self.transform(np.full((8, 8), value + SIDE))

def make():
    return Pictures(Crop(3))
"""
HELPERS = """
WIDTH = 4

def shrink(index):
    return index % WIDTH

def unrelated():
    return 0

class Add:
    def __init__(self, by):
        self.by = by
    def __call__(self, value):
        return value + self.by
"""

numbers = itertools.count()


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """The dataset of the two modules with a text replaced; they have the same names every time."""
    helpers, user = (f"{kind}_{next(numbers)}" for kind in ("helpers", "user"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def make(old: str = "", new: str = "") -> Any:
        for name, text in ((helpers, HELPERS), (user, MODULE.replace("HELPERS", helpers))):
            (tmp_path / f"{name}.py").write_text(text.replace(old, new) if old else text)
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return importlib.import_module(user).make()

    yield make
    for name in (helpers, user):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("return image[:side, :side]", "return image[:side, :side] + 0", "resize"),
        ("SIDE = 4", "SIDE = 5", "SIDE was 4, now 5"),
        ("return resize(image, self.side)", "return resize(image, self.side) * 1", "Crop"),
        ("return 6", "return 7", "had 6 samples, now 7"),
        ("Crop(3)", "Crop(2)", "transform.side was 3, now 2"),
        ("index % WIDTH", "index // WIDTH", "shrink changed"),
        ("WIDTH = 4", "WIDTH = 5", "WIDTH was 4, now 5"),
        ("value + self.by", "value - self.by", "Add changed"),
        ("Add(1)", "Add(2)", "SHIFT.by was 1, now 2"),
    ],
)
def test_a_change_of_code_or_parameters_is_named(
    written: Callable[..., Any], tmp_path: Path, old: str, new: str, words: str
) -> None:
    then = written()
    key = cache_fingerprint(then)
    bake(then, tmp_path / "out", num_workers=0)
    changed = written(old, new)
    for call in (
        lambda: Baked(tmp_path / "out", dataset=changed),
        lambda: bake(changed, tmp_path / "out", num_workers=0),
    ):
        with pytest.raises(StaleBakeError, match=words) as caught:
            call()
        assert "overwrite" in (caught.value.hint or "")
    assert cache_fingerprint(changed) != key
    bake(changed, tmp_path / "out", num_workers=0, overwrite=True)
    Baked(tmp_path / "out", dataset=changed)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def resize(image, side):", "def resize(image, side):\n    # in place"),
        ("return 6", "return (6)"),
        ("return 0", "return 1"),
    ],
)
def test_comments_layout_and_unrelated_code_do_not_count(
    written: Callable[..., Any], tmp_path: Path, old: str, new: str
) -> None:
    then = written()
    key = cache_fingerprint(then)
    bake(then, tmp_path / "out", num_workers=0)
    again = written(old, new)
    Baked(tmp_path / "out", dataset=again)
    assert cache_fingerprint(again) == key


def saved(path: Path, value: int) -> None:
    np.save(path, np.full((8, 3), value, np.int32))


def test_a_change_of_a_source_file_is_named(tmp_path: Path) -> None:
    saved(tmp_path / "rows.npy", 1)
    dataset = Rows(tmp_path / "rows.npy")
    bake(dataset, tmp_path / "out", num_workers=0)
    Baked(tmp_path / "out", dataset=Rows(tmp_path / "rows.npy"))  # fresh, not read from yet
    os.utime(tmp_path / "rows.npy", ns=(0, 123))
    with pytest.raises(StaleBakeError, match=r"rows\.npy changed"):
        Baked(tmp_path / "out", dataset=dataset)


def test_named_sources_take_the_place_of_those_found(tmp_path: Path) -> None:
    saved(tmp_path / "rows.npy", 1)
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "a.txt").write_text("a")
    dataset = Rows(tmp_path / "rows.npy")
    bake(dataset, tmp_path / "out", num_workers=0, source=[tmp_path / "labels"])
    os.utime(tmp_path / "rows.npy", ns=(0, 123))
    Baked(tmp_path / "out", dataset=dataset)
    (tmp_path / "labels" / "b.txt").write_text("b")
    with pytest.raises(StaleBakeError, match=r"b\.txt is new"):
        Baked(tmp_path / "out", dataset=dataset)


class Touching(Images):
    """Something writes to its source while it is read."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == 50:
            self.path.write_text("other")
        return super().__getitem__(index)


def test_a_source_that_changes_meanwhile_is_refused(tmp_path: Path) -> None:
    (tmp_path / "source").write_text("some")
    with pytest.raises(StaleBakeError, match=r"changed while it was baked.*source changed"):
        bake(Touching(tmp_path / "source"), tmp_path / "out", num_workers=2)
    assert not (tmp_path / "out").exists()
    with pytest.raises(StaleBakeError, match="unfinished bake"):  # half of it was read from the old file
        bake(Touching(tmp_path / "source"), tmp_path / "out", num_workers=2)


def test_what_reading_changes_is_no_parameter(tmp_path: Path) -> None:
    bake(Counting(), tmp_path / "out", num_workers=0)
    used = Counting()
    used[3]
    Baked(tmp_path / "out", dataset=used)


def test_every_file_counts_for_the_cache(tmp_path: Path) -> None:
    paths = [tmp_path / f"{k}.jpg" for k in range(600)]
    for path in paths:
        path.write_text("x")
    then = [cache_fingerprint(paths), cache_fingerprint(tmp_path)]
    assert [cache_fingerprint(paths), cache_fingerprint(tmp_path)] == then
    os.utime(paths[300], ns=(0, 123))
    assert cache_fingerprint(paths) != then[0]
    assert cache_fingerprint(tmp_path) != then[1]


def shifted(by: int) -> Callable[[Callable[[int], int]], Callable[[int], int]]:
    def wrap(function: Callable[[int], int]) -> Callable[[int], int]:
        @functools.wraps(function)
        def wrapper(index: int) -> int:
            return function(index) + by

        return wrapper

    return wrap


def plain(index: int) -> int:
    return index


class Tuned:
    """A class whose attribute a script sets."""

    side = 4


def tuned(side: int) -> type:
    Tuned.side = side
    return Tuned


def seeded(number: int) -> list[Any]:
    return [
        torch.Generator().manual_seed(number),
        np.random.default_rng(number),
        np.random.SeedSequence(number),
        np.random.PCG64(number),
        np.random.RandomState(number),
        random.Random(number),
    ]


SAME, OTHER = [1], [1]

PAIRS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "what a decorator took along": (lambda: shifted(1)(plain), lambda: shifted(2)(plain)),
    "a default value": (lambda: [lambda k=k: k for k in (1,)], lambda: [lambda k=k: k for k in (2,)]),
    "one object twice or two equal ones": (lambda: [SAME, SAME], lambda: [SAME, OTHER]),
    "an attribute of a class": (lambda: tuned(4)(), lambda: tuned(5)()),
    "objects of a set": (lambda: {Given([k]) for k in range(9)}, lambda: {Given([k]) for k in range(8)}),
    "the object of a bound method": (lambda: {"a": 1}.get, lambda: {"a": 2}.get),
    **{
        f"the seed of a {type(one).__module__}.{type(one).__name__}": (
            lambda k=k: seeded(1)[k],
            lambda k=k: seeded(2)[k],
        )  # type: ignore[misc]
        for k, one in enumerate(seeded(0))
    },
}


@pytest.mark.parametrize("name", PAIRS)
def test_bake_and_cache_tell_apart(name: str) -> None:
    first, second = PAIRS[name]
    then, key = fingerprint.take(Given([first()])), cache_fingerprint(Given([first()]))
    assert fingerprint.changes(then, fingerprint.take(Given([first()]))) == []
    assert cache_fingerprint(Given([first()])) == key
    assert fingerprint.changes(then, fingerprint.take(Given([second()])))
    assert cache_fingerprint(Given([second()])) != key


def test_a_generator_counts_by_its_seed_and_not_by_what_was_drawn() -> None:
    first, second = (Given(seeded(1)[:4]) for _ in range(2))
    torch.rand(3, generator=second.samples[0])
    second.samples[1].random(3)
    second.samples[2].spawn(2)
    assert cache_fingerprint(first) == cache_fingerprint(second)


@dataclass
class Settings:
    root: str = "there"


def test_what_a_dataclass_makes_itself_needs_no_source() -> None:
    found = Ingredients()
    found.visit("settings", Settings())
    assert found.unreadable == []
