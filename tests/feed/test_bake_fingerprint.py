"""A bake knows what it was made from: what changes is named, what does not matter is not."""

from __future__ import annotations

import functools
import importlib
import itertools
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from bake_datasets import Counting, Given, Images, Rows, scaled

from hotloop.feed import Baked, StaleBakeError, bake
from hotloop.feed.baking import fingerprint
from hotloop.feed.cache.fingerprint import fingerprint as cache_fingerprint

MODULE = """
import numpy as np

SIDE = 4

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
        return self.transform(np.full((8, 8), index + SIDE))

def make():
    return Pictures(Crop(3))
"""

numbers = itertools.count()


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Writes the module's text and imports it, under the same name every time."""
    name = f"baked_module_{next(numbers)}"
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(text: str) -> ModuleType:
        (tmp_path / f"{name}.py").write_text(text)
        sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    yield write
    sys.modules.pop(name, None)


CHANGES = [
    ("return image[:side, :side]", "return image[:side, :side] + 0", "resize"),
    ("SIDE = 4", "SIDE = 5", "SIDE was 4, now 5"),
    ("return resize(image, self.side)", "return resize(image, self.side) * 1", "Crop"),
    ("return 6", "return 7", "had 6 samples, now 7"),
    ("Crop(3)", "Crop(2)", "transform.side was 3, now 2"),
]


@pytest.mark.parametrize(("old", "new", "words"), CHANGES)
def test_a_change_of_code_or_parameters_is_named(
    written: Callable[[str], ModuleType], tmp_path: Path, old: str, new: str, words: str
) -> None:
    bake(written(MODULE).make(), tmp_path / "out", num_workers=0)
    changed = written(MODULE.replace(old, new)).make()
    for call in (
        lambda: Baked(tmp_path / "out", dataset=changed),
        lambda: bake(changed, tmp_path / "out", num_workers=0),
    ):
        with pytest.raises(StaleBakeError, match=words) as caught:
            call()
        assert "overwrite" in (caught.value.hint or "")
    bake(changed, tmp_path / "out", num_workers=0, overwrite=True)
    Baked(tmp_path / "out", dataset=changed)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def resize(image, side):", 'def resize(image, side):\n    """Crops."""\n    # in place'),
        ("return 6", "return (6)"),
        ("def make():", "def unrelated():\n    pass\n\ndef make():"),
    ],
)
def test_comments_layout_and_unrelated_code_do_not_count(
    written: Callable[[str], ModuleType], tmp_path: Path, old: str, new: str
) -> None:
    bake(written(MODULE).make(), tmp_path / "out", num_workers=0)
    Baked(tmp_path / "out", dataset=written(MODULE.replace(old, new)).make())


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


def test_a_bake_beside_its_source_is_no_source(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    saved(tmp_path / "rows" / "rows.npy", 1)
    dataset = Rows(tmp_path / "rows" / "rows.npy")
    bake(dataset, tmp_path / "rows" / "first", num_workers=0, source=[tmp_path / "rows"])
    bake(dataset, tmp_path / "rows" / "second", num_workers=0, source=[tmp_path / "rows"])
    Baked(tmp_path / "rows" / "first", dataset=dataset)  # the second is not new data
    Baked(tmp_path / "rows" / "second", dataset=dataset)


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


def test_functions_and_their_arguments_count(tmp_path: Path) -> None:
    saved(tmp_path / "rows.npy", 1)
    bake(Rows(tmp_path / "rows.npy", functools.partial(scaled, by=2.0)), tmp_path / "out", num_workers=0)
    with pytest.raises(StaleBakeError, match=r"by'\] was 2.0, now 3.0"):
        Baked(tmp_path / "out", dataset=Rows(tmp_path / "rows.npy", functools.partial(scaled, by=3.0)))


def test_no_folder_that_holds_more_than_data_is_a_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("a")
    monkeypatch.chdir(tmp_path / "work")
    words = ["/", "/proc", "/dev/null", str(tmp_path), str(tmp_path / "work"), str(tmp_path / "data")]
    assert list(fingerprint.take(Given(words)).sources) == [str(tmp_path / "data" / "a.txt")]


def test_large_containers_are_one_line_each() -> None:
    paths = [f"/nowhere/{k}.jpg" for k in range(5_000)]
    taken = fingerprint.take(Given([paths, np.arange(100_000)]))
    assert len(taken.parameters) < 10
    other = fingerprint.take(Given([[*paths[:-1], "/nowhere/other.jpg"], np.arange(100_000)]))
    assert len(fingerprint.changes(taken, other)) == 1


def test_many_source_files_are_told_by_folder(tmp_path: Path) -> None:
    for k in range(300):
        (tmp_path / f"{k}.jpg").write_text("x")
    then = fingerprint.take(Given([0]), source=[tmp_path])
    assert len(then.sources) == 1
    (tmp_path / "7.jpg").write_text("yy")
    now = fingerprint.take(Given([0]), source=[tmp_path])
    assert len(fingerprint.changes(then, now)) == 1


USER = """
import json
import {helpers}
from {helpers} import Add

SHIFT = Add(1)

class Pictures:
    def __len__(self):
        return 6
    def __getitem__(self, index):
        return SHIFT({helpers}.shrink(index)) + len(json.dumps(index))
"""
HELPERS = """
SIDE = 4

def shrink(index):
    return index % SIDE

def unrelated():
    return 0

class Add:
    def __init__(self, by):
        self.by = by
    def __call__(self, value):
        return value + self.by
"""


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("index % SIDE", "index // SIDE", "shrink changed"),
        ("SIDE = 4", "SIDE = 5", "SIDE was 4, now 5"),
        ("value + self.by", "value - self.by", "Add changed"),
        ("Add(1)", "Add(2)", "SHIFT.by was 1, now 2"),
        ("return 0", "return 1", None),
    ],
)
def test_modules_and_instances_that_are_globals_are_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, words: str | None
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    helpers, user = (f"{kind}_{next(numbers)}" for kind in ("helpers", "user"))

    def make(old: str, new: str) -> Any:
        (tmp_path / f"{helpers}.py").write_text(HELPERS.replace(old, new))
        (tmp_path / f"{user}.py").write_text(USER.format(helpers=helpers).replace(old, new))
        for name in (helpers, user):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return importlib.import_module(user).Pictures()

    then = make("SIDE = 4", "SIDE = 4")
    taken, cached_then = fingerprint.take(then), cache_fingerprint(then)
    now = make(old, new)
    found = fingerprint.changes(taken, fingerprint.take(now))
    assert len(found) == (words is not None)
    assert words is None or words in found[0]
    assert (cache_fingerprint(now) == cached_then) == (words is None)


def test_names_are_seen_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        saved(tmp_path / name / "rows.npy", 1)
        os.utime(tmp_path / name / "rows.npy", ns=(0, 0))
    monkeypatch.chdir(tmp_path / "one")
    taken, keys = [fingerprint.take(Given(["rows.npy"]))], [cache_fingerprint("rows.npy")]
    os.utime("rows.npy", ns=(0, 123))
    taken, keys = (
        [*taken, fingerprint.take(Given(["rows.npy"]))],
        [*keys, cache_fingerprint("rows.npy")],
    )
    assert "rows.npy changed" in fingerprint.changes(*taken)[0]
    monkeypatch.chdir(tmp_path / "two")
    assert len({*keys, cache_fingerprint("rows.npy")}) == 3


def test_a_mapped_file_counts_by_place_and_time_and_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.npy"
    saved(path, 1)
    os.utime(path, ns=(0, 0))
    rows = np.load(path, mmap_mode="r")
    then, parts = (
        fingerprint.take(Given([rows])),
        {cache_fingerprint(Given([part])) for part in (rows, rows[1:], rows.T)},
    )
    assert len(parts) == 3
    assert list(then.sources) == [str(path)]
    changed = np.load(path, mmap_mode="r+")
    changed[:] = 2
    changed.flush()
    os.utime(path, ns=(0, 0))
    assert fingerprint.changes(then, fingerprint.take(Given([rows]))) == []
    os.utime(path, ns=(0, 123))
    assert "rows.npy changed" in fingerprint.changes(then, fingerprint.take(Given([rows])))[0]
    assert cache_fingerprint(Given([rows])) not in parts


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


def adding(by: int) -> type:
    class Adds:
        def __call__(self, value: int) -> int:
            return value + by

    return Adds


def derived(base: type) -> type:
    class Derived(base):  # type: ignore[misc]
        pass

    return Derived


def which(*order: int) -> list[Any]:
    """A long list of two objects, over and over."""
    two = [[1, 0], [0, 1]]
    return [two[k] for k in (0, 1, *order, *[0] * 50)]


def of_two(*order: int, make: Callable[[type], Any] = lambda kind: kind) -> list[Any]:
    kinds = adding(1), adding(2)
    return [*kinds, *(make(kinds[k]) for k in order)]


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
    "objects in an array": (
        lambda: np.array([Given([1]), None], object),
        lambda: np.array([Given([2]), None], object),
    ),
    "the object of a bound method": (lambda: {"a": 1}.get, lambda: {"a": 2}.get),
    "an element of a large set": (lambda: set(range(100)), lambda: set(range(1, 101))),
    "which object, in a long list": (lambda: which(0, 1), lambda: which(1, 0)),
    "which object, in a large dict": (
        lambda: dict(enumerate(which(0, 1))),
        lambda: dict(enumerate(which(1, 0))),
    ),
    "what a second class of one name took along": (
        lambda: [adding(1), adding(2)],
        lambda: [adding(1), adding(3)],
    ),
    "which class of one name it is of": (
        lambda: of_two(0, make=lambda kind: kind()),
        lambda: of_two(1, make=lambda kind: kind()),
    ),
    "which class of one name is the base": (
        lambda: of_two(0, make=derived),
        lambda: of_two(1, make=derived),
    ),
    "an attribute of a class met in a set": (lambda: {tuned(4)()}, lambda: {tuned(5)()}),
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


def test_a_lock_is_no_part_of_what_is_read() -> None:
    first, second = Given([threading.Lock()]), Given([threading.Lock()])
    second.samples[0].acquire()
    assert fingerprint.changes(fingerprint.take(first), fingerprint.take(second)) == []
    assert cache_fingerprint(first) == cache_fingerprint(second)


def test_a_generator_counts_by_its_seed_and_not_by_what_was_drawn() -> None:
    first, second = (Given(seeded(1)[:4]) for _ in range(2))
    torch.rand(3, generator=second.samples[0])
    second.samples[1].random(3)
    second.samples[2].spawn(2)
    assert cache_fingerprint(first) == cache_fingerprint(second)


def test_behind_a_stage_every_rank_and_run_may_draw_from_a_seed_of_its_own() -> None:
    assert cache_fingerprint(seeded(1), seeds=False) == cache_fingerprint(seeded(2), seeds=False)


def test_a_set_of_objects_has_no_order() -> None:
    for make in (lambda number: Given([number]), lambda number: adding(number)()):
        first, second = ({make(number) for number in order} for order in (range(5), range(4, -1, -1)))
        assert cache_fingerprint(first) == cache_fingerprint(second)
