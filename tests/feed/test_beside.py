"""Epochs without workers: which they are, and that nobody can tell but by the clock."""

from __future__ import annotations

import multiprocessing
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from hotloop.feed import Baked, Loader, bake, cached
from hotloop.feed.errors import DamagedBakeError

NUM = 103


class Pictures(Dataset[Any]):
    def __len__(self) -> int:
        return NUM

    def __getitem__(self, index: int) -> Any:
        return {"picture": torch.full((3, 40, 40), index, dtype=torch.uint8), "label": (index, index / 2)}


class Noted(Pictures):
    """Notes every reading in a file, by whichever process."""

    def __init__(self, notes: Path) -> None:
        self.notes = notes

    def __getitem__(self, index: int) -> Any:
        with self.notes.open("a") as file:
            file.write(f"{index}\n")
        return super().__getitem__(index)

    def read(self) -> list[int]:
        """What was read since the last time."""
        found = [int(line) for line in self.notes.read_text().split()] if self.notes.exists() else []
        self.notes.unlink(missing_ok=True)
        return found


@pytest.fixture
def pictures(tmp_path: Path) -> Noted:
    return Noted(tmp_path / "notes")


def in_memory(dataset: Any, max_bytes: str = "64MiB") -> Any:
    return cached(dataset, max_bytes=max_bytes, shared=False)


def loader(kind: Any, dataset: Any, **options: Any) -> Any:
    generator = torch.Generator().manual_seed(3)
    if kind is Loader:
        options = {"worker_method": "beside", **options}
    return kind(dataset, batch_size=8, shuffle=True, num_workers=2, generator=generator, **options)


def flat(batches: Any) -> list[Any]:
    return [(batch["picture"].clone(), *(one.clone() for one in batch["label"])) for batch in batches]


def assert_same(ours: list[Any], theirs: list[Any]) -> None:
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        for mine, wanted in zip(one, other, strict=True):
            assert mine.dtype == wanted.dtype and torch.equal(mine, wanted)


def workers_of(ours: Any) -> int:
    """Worker processes in the middle of an epoch."""
    before = set(multiprocessing.active_children())
    iterator = iter(ours)
    next(iterator)
    return len(set(multiprocessing.active_children()) - before)


def feeding_threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("feed")]


@pytest.mark.parametrize("persistent", [False, True])
def test_the_batches_are_torchs_in_epochs_with_workers_and_without(pictures: Noted, persistent: bool) -> None:
    ours = loader(Loader, in_memory(pictures), persistent_workers=persistent)
    theirs = loader(DataLoader, pictures, persistent_workers=persistent)
    for epoch in range(4):
        wanted = flat(theirs)
        pictures.read()
        assert_same(flat(ours), wanted)
        assert sorted(pictures.read()) == (list(range(NUM)) if epoch == 0 else [])


def test_a_full_cache_needs_no_workers(pictures: Noted) -> None:
    ours = loader(Loader, in_memory(pictures))
    assert workers_of(ours) == 2
    flat(ours)
    assert workers_of(ours) == 0 and not feeding_threads()


@pytest.mark.parametrize(
    "options",
    [
        {"worker_method": "process"},
        {"worker_init_fn": print},
        {"timeout": 60},
        {"debug": True},
        {"in_order": False},
        {"collate_fn": list},
        {"seed_by": "sample"},
    ],
    ids=str,
)
def test_workers_stay_where_somebody_could_tell(pictures: Noted, options: dict[str, Any]) -> None:
    full = in_memory(pictures)
    flat(loader(Loader, full))
    assert workers_of(loader(Loader, full, **options)) == 2


@pytest.mark.parametrize("again", ["full", "empty"])
@pytest.mark.parametrize("persistent", [False, True])
def test_an_epoch_goes_on_with_and_without_workers(pictures: Noted, again: str, persistent: bool) -> None:
    full = in_memory(pictures)
    ours = loader(Loader, full, persistent_workers=persistent)
    flat(ours)
    iterator = iter(ours)
    for _ in range(5):
        next(iterator)
    state = ours.state_dict()
    rest = flat(iterator)
    pictures.read()
    resumed = loader(Loader, full if again == "full" else in_memory(pictures), persistent_workers=persistent)
    pictures.read()
    resumed.load_state_dict(state)
    assert_same(flat(resumed), rest)
    left = NUM - 5 * 8 if again == "empty" else 0
    assert len(pictures.read()) == left  # what was handed out is not made again


def test_a_damaged_bake_is_an_error_and_the_rest_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "baked"
    bake(Pictures(), folder, num_workers=0, progress=False)
    file = max(folder.rglob("*"), key=lambda path: path.stat().st_size if path.is_file() else 0)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    iterator = iter(Loader(Baked(folder), batch_size=8, num_workers=2, worker_method="beside"))
    good, num_bad = 0, 0
    for _ in range(13):
        try:
            good += len(next(iterator)["label"][0])
        except DamagedBakeError:
            num_bad += 1
    assert num_bad and good == NUM - 8 * num_bad + (1 if good % 8 == 0 else 0)
    assert next(iterator, None) is None
