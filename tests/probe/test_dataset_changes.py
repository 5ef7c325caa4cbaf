"""What changes in a dataset from an iterator to the next: workers that stay would not see it."""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.running import run_observed

from hotloop.probe.observers.dataset_state import settings_of, state_of
from hotloop.probe.observers.loaders import Looks

SCRIPT = """
    import torch
    from torch.utils.data import DataLoader, Dataset, Subset

    class Data(Dataset):
        def __init__(self):
            self.x, self.crop, self.file = torch.rand(8, 4), 1, None
        def __len__(self):
            return 8
        def __getitem__(self, i):
            self.file = self.file or object()
            return self.x[i] * self.crop

    data, still = Data(), Data()
    for epoch in range(3):
        data.crop += 1
        for each in (data, still):
            for _ in DataLoader(Subset(each, range(6)), 2):
                pass
"""


NESTED = """
    import argparse
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Horizon:
        def __init__(self):
            self.steps, self.grow = 8, 2

    class Data(Dataset):
        def __init__(self, cfg, args, model):
            self.cfg, self.args, self.model, self.read = cfg, args, model, {}
            self.x = torch.rand(8, 40)
        def __len__(self):
            return 8
        def __getitem__(self, i):
            self.read[i] = i
            return self.x[i, : self.cfg["horizon"].steps] * self.args.scale

    cfg = {"horizon": Horizon(), "window": 4}
    args = argparse.Namespace(scale=1.0, seed=3)
    model = torch.nn.Linear(2, 2)
    data = Data(cfg, args, model)
    for epoch in range(3):
        for _ in DataLoader(data, 2):
            pass
        cfg["horizon"].steps += 2
        args.scale += 1
        model.train(epoch % 2 == 1)
"""


def test_what_changes_in_settings_that_the_dataset_holds_is_noted_too(tmp_path: Path) -> None:
    process = run_observed(NESTED, folder=tmp_path)
    changed = {name for note in process.notes["dataset_changed"] for name in note["names"]}
    assert changed == {"cfg.horizon.steps", "args.scale"}


def test_what_the_script_changes_is_noted_and_what_is_opened_when_needed_is_not(tmp_path: Path) -> None:
    process = run_observed(SCRIPT, folder=tmp_path)
    assert {name for note in process.notes["dataset_changed"] for name in note["names"]} == {"crop"}


INSIDE = """
    import torch
    from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset

    class Blur:
        strength = 1.0
        def __init__(self):
            self.size, self.calls = 1, []

    class Data(Dataset):
        def __init__(self):
            self.x, self.blur = torch.rand(8, 4), Blur()
            self.settings, self.steps = {"aug": {"crop": 1}}, [1.0, 2.0]
            self.seen = torch.zeros(1).share_memory_()
            self.many = list(range(5000))
        def __len__(self):
            return 8
        def __getitem__(self, i):
            self.seen += 1
            self.blur.calls.append(i)
            return self.x[i] * self.settings["aug"]["crop"] * self.steps[0]

    data = Data()
    loader = DataLoader(OF, 4, num_workers=1)
    for epoch in range(3):
        CHANGE
        for _ in loader:
            pass
"""


@pytest.mark.parametrize(
    ("change", "of", "name"),
    [
        ("data.settings['aug']['crop'] += 1", "data", "settings['aug']['crop']"),
        ("data.blur.size += 1", "Subset(data, range(6))", "blur.size"),
        ("data.blur.size += 1", "ConcatDataset([data])", "datasets[0].blur.size"),
        ("Blur.strength += 1", "data", "blur.strength"),
        ("data.steps[0] += 1", "data", "steps"),
        ("data.x.mul_(2)", "data", "x"),
        ("pass", "data", ""),
    ],
)
def test_with_workers_what_the_script_changes_inside_is_noted_too(
    change: str, of: str, name: str, tmp_path: Path
) -> None:
    process = run_observed(INSIDE.replace("CHANGE", change).replace("OF", of), folder=tmp_path)
    found = {one for note in process.notes.get("dataset_changed", ()) for one in note["names"]}
    assert found == ({name} if name else set())


HERE = """
    import torch
    from torch.utils.data import DataLoader, Dataset, random_split

    class Data(Dataset):
        def __init__(self):
            self.x, self.losses, self.train, self.strength, self.crop = torch.rand(8, 4), 0.0, True, 1, 1
            self.calls, self.last, self.transform = 0, 0, None
        def __len__(self):
            return 8
        def shifted(self, x):
            return x + self.strength
        def set_crop(self, crop):
            self.crop = crop
        def __getitem__(self, i):
            self.calls += 1
            self.last = i
            if self.calls > 1000:
                print(self.calls)
            x = min(self.x[i], self.x[i], key=id)
            x = cropped(x, self.crop) if self.train else x
            return self.transform(x) if self.transform else x

    def cropped(x, n):
        return x * n

    data = Data()
    SETUP
    train, valid = random_split(data, [4, 4])
    loaders = {}
    loaders["train"] = DataLoader(train, 2)
    loaders["valid"] = DataLoader(valid, 2)
    for epoch in range(3):
        data.train = True
        for step, x in enumerate(loaders["train"]):
            data.losses += float(x.mean())
            if step == 0:
                data.train = False
                for _ in loaders["valid"]:
                    pass
                data.train = True
        CHANGE
"""


@pytest.mark.parametrize(
    ("setup", "change", "names"),
    [
        ("pass", "pass", set[str]()),
        ("pass", "data.set_crop(epoch + 2)", {"crop"}),
        ("pass", "data.strength += 1", set[str]()),
        ("data.transform = data.shifted", "data.strength += 1", {"strength", "losses"}),
    ],
)
def test_without_workers_what_samples_write_or_never_read_has_not_changed(
    tmp_path: Path, setup: str, change: str, names: set[str]
) -> None:
    process = run_observed(HERE.replace("SETUP", setup).replace("CHANGE", change), folder=tmp_path)
    assert process.returncode == 0, process.stderr
    assert {name for note in process.notes.get("dataset_changed", ()) for name in note["names"]} == names
    assert not process.notes.get("dataset_written")


def test_no_code_of_the_script_runs_when_a_dataset_is_looked_at() -> None:
    asked: list[str] = []

    class Lazy(dict[str, int]):
        def items(self) -> Any:
            asked.append("items")
            return super().items()

    class Slotted:
        __slots__ = ()

        def __getattr__(self, name: str) -> Any:
            asked.append(name)
            raise AttributeError(name)

    class Data:
        def __init__(self) -> None:
            self.lazy, self.slotted, self.kinds = Lazy(a=1), Slotted(), defaultdict(int, a=1)

    found = state_of(Data())
    assert {"lazy", "slotted", "kinds['a']"} <= found.keys()
    settings_of(Data(), lambda file: True)
    assert not asked


def test_only_attributes_are_looked_at_where_looking_takes_too_long() -> None:
    data = SimpleNamespace(crop=1, inner=SimpleNamespace(size=2))
    assert state_of(data, into=False).keys() == {"crop", "inner"}
    assert settings_of(data, lambda file: True, into=False).keys() == {"crop", "inner"}


def test_what_datasets_hold_is_looked_at_while_that_takes_little_time() -> None:
    looks, seen = Looks(), list[bool]()

    def look(into: bool) -> None:
        seen.append(into)
        time.sleep(0.001)

    for _ in range(10):
        looks.take(look)
    assert seen == [True] * 8 + [False] * 2
