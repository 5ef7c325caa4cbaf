"""What a dataset holds and changes its samples with, as far as it can be asked without reading any of it."""

from __future__ import annotations

import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from hotloop.probe.observers.loader_facts import dataset_facts, transforms_of


class ToTensor:
    def __call__(self, sample: Any) -> Any:
        return sample


class Flip(torch.nn.Module):
    pass


class Compose:
    def __init__(self, *transforms: Any) -> None:
        self.transforms = list(transforms)

    def __call__(self, sample: Any) -> Any:
        return sample


class Both:
    """As torchvision's datasets hold theirs: once plain, once for sample and target together."""

    def __init__(self, transform: Any) -> None:
        self.transform, self.target_transform = transform, None

    def __call__(self, sample: Any) -> Any:
        return sample


class Pictures:
    def __init__(self, transform: Any = None, **more: Any) -> None:
        self.files = ["a.png"]
        self.transform = transform
        self.transforms = Both(transform)
        self.__dict__.update(more)


def lowered(sample: Any) -> Any:
    return sample


@pytest.mark.parametrize(
    ("dataset", "names"),
    [
        (Pictures(Compose(ToTensor(), Compose(Flip(), lowered))), ["ToTensor", "Flip", "lowered"]),
        (Pictures(torch.nn.Sequential(Flip(), torch.nn.Identity())), ["Flip", "Identity"]),
        (Pictures(transform_at_all=True, augmentation=Flip()), ["Both", "Flip"]),
        ([1, 2], []),
    ],
)
def test_transforms_are_named_where_a_dataset_holds_them(dataset: Any, names: list[str]) -> None:
    assert [name.rpartition(".")[2] for name in transforms_of(dataset)] == names


def test_transforms_that_hold_each_other_end() -> None:
    one, other = Compose(), Compose()
    one.transforms, other.transforms = [other], [one]
    assert transforms_of(Pictures(one)) == []


def test_a_file_that_the_dataset_holds_open_is_named(tmp_path: Path) -> None:
    (tmp_path / "records").write_bytes(bytes(8))
    with (tmp_path / "records").open("rb") as file:
        data = SimpleNamespace(inner=SimpleNamespace(file=file))
        assert dataset_facts(data, None, iterable=False)["open_file"].endswith("records")
    assert dataset_facts(data, None, iterable=False)["open_file"] == ""


def test_a_database_that_the_dataset_holds_open_is_named(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "rows.db")) as database:
        data = SimpleNamespace(reader=SimpleNamespace(database=database))
        assert dataset_facts(data, None, iterable=False)["open_file"] == "sqlite3.Connection"
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("one", b"1")
    with zipfile.ZipFile(tmp_path / "all.zip") as archive:
        facts = dataset_facts(SimpleNamespace(archive=archive), None, iterable=False)
        assert facts["open_file"].endswith("all.zip")
    np.save(tmp_path / "rows.npy", np.zeros(4))
    mapped = SimpleNamespace(rows=np.load(tmp_path / "rows.npy", mmap_mode="r"))
    assert dataset_facts(mapped, None, iterable=False)["open_file"] == ""


def test_an_hdf5_file_that_the_dataset_holds_open_is_named(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["x"] = np.zeros(4)
    with h5py.File(tmp_path / "rows.h5") as file:
        data = SimpleNamespace(x=file["x"])
        assert dataset_facts(data, None, iterable=False)["open_file"].endswith("rows.h5")
    assert dataset_facts(data, None, iterable=False)["open_file"] == ""
