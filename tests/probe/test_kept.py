"""A cache of the dataset's own, as a worker looks at it."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from hotloop.probe.kept import Kept, cache_of


class Cache:
    def __init__(self) -> None:
        self.kept: OrderedDict[Any, Any] = OrderedDict()
        self.hits = self.misses = 0


class Probe:
    """Takes notes."""

    def __init__(self) -> None:
        self.is_user = SimpleNamespace(path=str)
        self.notes: list[dict[str, Any]] = []

    def note(self, kind: str, **fields: Any) -> None:
        assert kind == "kept"
        self.notes.append(fields)


class Frames:
    def __init__(self) -> None:
        self.cache = Cache()

    @property
    def never(self) -> None:
        raise AssertionError("nothing of the script's is called")


class Wrapper:
    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset


@pytest.fixture
def probe() -> Any:
    return Probe()


def test_counters_entries_and_new_keys_are_noted(probe: Any) -> None:
    frames, kept = Frames(), Kept(probe)
    cache = frames.cache
    kept.look(Wrapper(frames))
    assert not probe.notes  # nothing is kept yet
    for number in range(3):
        cache.kept[0, number] = {
            "blur": np.zeros(256, np.float32),
            "voxel": torch.zeros(512, dtype=torch.uint8),
        }
    cache.misses = 3
    kept.look(Wrapper(frames))
    kept.look(Wrapper(frames))  # nobody has read it since
    del cache.kept[0, 0]
    cache.kept[1, 0] = {}
    cache.hits = 1
    kept.look(Wrapper(frames))
    first, second = probe.notes
    assert (first["holder"], first["name"], first["dataset"]) == ("Cache", "kept", "Wrapper")
    assert Path(first["place"][0]).name == "test_kept.py"
    assert (first["entries"], first["bytes_each"], len(first["new"])) == (3, 1536, 3)
    assert (second["hits"], second["misses"], len(second["new"])) == (1, 3, 1)


def test_keys_have_the_same_numbers_in_every_process(probe: Any) -> None:
    frames = Frames()
    frames.cache.kept["seq_000", 3] = frames.cache.kept[b"x"] = 1
    frames.cache.misses = 1
    Kept(probe).look(frames)
    assert probe.notes[0]["new"] == [435810903, 3481663076]


def test_keys_with_code_of_their_own_are_not_asked(probe: Any) -> None:
    class Key:
        def __repr__(self) -> str:
            raise AssertionError

    frames = Frames()
    frames.cache.kept[Key()] = np.zeros(4)
    frames.cache.misses = 1
    Kept(probe).look(frames)
    assert probe.notes[0]["new"] == []


def test_without_counters_there_is_nothing_to_tell() -> None:
    frames = Frames()
    frames.cache.kept[0] = 1
    del frames.cache.hits
    assert cache_of(frames.cache) is None
    frames.cache.hits = True  # type: ignore[assignment]
    assert cache_of(frames.cache) is None
