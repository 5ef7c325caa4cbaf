"""What changes in a dataset, between two passes and within one: workers would not see it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.running import run_observed, succeeded

from hotloop.measure.loaders import changes_of, written_of
from hotloop.probe.observers.datasets import Datasets

SCRIPT = """
    import argparse
    import torch
    from torch.utils.data import DataLoader, Dataset, Subset

    class Horizon:
        def __init__(self):
            self.steps, self.grow = 8, 2

    class Data(Dataset):
        def __init__(self, cfg, args, model):
            self.cfg, self.args, self.model, self.read = cfg, args, model, {}
            self.x, self.crop, self.file, self.calls, self.seen = torch.rand(8, 40), 1, None, 0, 0
        def __len__(self):
            return 8
        def __getitem__(self, i):
            self.file = self.file or object()
            self.read[i] = i
            self.calls += 1
            if self.calls > 1000:
                print(self.calls)
            return self.x[i, : self.cfg["horizon"].steps] * self.args.scale * self.crop

    cfg = {"horizon": Horizon(), "window": 4}
    args = argparse.Namespace(scale=1.0, seed=3)
    model = torch.nn.Linear(2, 2)
    data, still = (Data(cfg, args, model) for _ in range(2))
    for epoch in range(3):
        if epoch:
            cfg["horizon"].steps += 2
            args.scale += 1
            model.train(epoch % 2 == 1)
            data.crop += 1
            data.seen += 1
        for each in (data, still):
            for _ in DataLoader(Subset(each, range(6)), 2):
                pass
"""


def test_what_the_script_changes_is_known_and_what_samples_open_or_count_is_not(tmp_path: Path) -> None:
    process = run_observed(SCRIPT, folder=tmp_path)
    found = [changes_of(process, note["id"]) for note in process.notes["loader"]]
    assert {name for names in found for name in names} == {"crop", "cfg['horizon'].steps", "args.scale"}
    assert not any(written_of(process, note["id"]) for note in process.notes["loader"])


INSIDE = """
    import sys, torch
    from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset

    class Blur:
        strength = 1.0
        def __init__(self):
            self.size, self.calls = 1, []
        def __call__(self, x):
            return x * self.size * self.strength

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
            return self.blur(self.x[i]) * self.settings["aug"]["crop"] * self.steps[0]

    def other(data):
        data.settings["aug"]["crop"] += 1

    def size(data):
        data.blur.size += 1

    def kind(data):
        Blur.strength += 1

    def item(data):
        data.steps[0] += 1

    def tensor(data):
        data.x.mul_(2)

    for change in (other, size, kind, item, tensor, print):
        for wrap in (lambda data: data, lambda data: ConcatDataset([data])):
            data = Data()
            loader = DataLoader(wrap(data), 4, num_workers=1, multiprocessing_context="fork")
            for epoch in range(2):
                for _ in loader:
                    pass
                change(data)
"""


def test_with_workers_what_the_script_changes_inside_is_known_too(tmp_path: Path) -> None:
    process = run_observed(INSIDE, folder=tmp_path)
    found = [changes_of(process, note["id"]) for note in process.notes["loader"]]
    names = ["settings['aug']['crop']", "blur.size", "blur.strength", "steps", "x"]
    assert found == [*((f"{at}{name}",) for name in names for at in ("", "datasets[0].")), (), ()]


WITHIN = """
    import sys, numpy as np, torch
    from torch.utils.data import DataLoader, Dataset

    class Data(Dataset):
        def __init__(self):
            self.x, self.hard, self.seen = torch.rand(8, 4), np.zeros(8, "float32"), np.zeros(8)
            self.labels, self.cache, self.calls, self.last = list(range(8)), {}, 0, 0.0
        def __len__(self):
            return 8
        def mark(self, i):
            self.labels[i] = -1
        def __getitem__(self, i):
            if i % 3 == 0:
                i = int(self.hard.argmax())
            if i not in self.cache:
                self.cache[i] = self.x[i]
            self.calls += 1
            return self.cache[i], self.labels[i], i

    class Kept(Data):
        def __getitem__(self, i):
            x, y, i = super().__getitem__(i)
            x = x + self.last
            self.last = float(x.mean())
            return x, y, i

    class Shard(Data):
        shard, rows = 0, None
        def __getitem__(self, i):
            if i // 4 != self.shard:
                self.shard = i // 4
                self.rows = self.x[i // 4 * 4 :]
            return super().__getitem__(i)

    class Noise:
        def __init__(self):
            self.seed, self.size = 0, 1
        def set_size(self, size):
            self.size = size
        def __call__(self, x):
            return x * self.size + self.seed

    class Noisy(Data):
        def __init__(self):
            super().__init__()
            self.noise = Noise()
        def __getitem__(self, i):
            self.noise.seed = i
            return self.noise(self.x[i]), self.labels[i], i

    class Tuned(Noisy):
        def __getitem__(self, i):
            return self.noise(self.x[i]), self.labels[i], i

    torch.multiprocessing.set_start_method("fork")
    kinds = {"kept": Kept, "noisy": Noisy, "resized": Noisy, "tuned": Tuned, "shard": Shard}
    for which in sys.argv[1:]:
        data = kinds.get(which, Data)()
        for epoch in range(2):
            for x, y, i in DataLoader(data, 2, num_workers=int(which == "workers")):
                if which in ("mined", "workers"):
                    data.hard[i.numpy()] = x.mean(1).numpy()
                if which == "resized":
                    data.noise.size += 1
                if which == "tuned":
                    data.noise.seed += 1
                if which == "marked":
                    data.mark(int(i[0]))
                data.seen[i.numpy()] += 1
"""
WRITTEN = {
    "mined": ("hard",), "marked": ("labels",), "kept": ("last",), "none": (), "shard": (),
    "resized": ("noise.size",), "tuned": ("noise.seed",), "workers": ("hard",),
}  # fmt: skip


def test_what_is_written_while_samples_are_made_of_it_is_known(tmp_path: Path) -> None:
    process = succeeded(run_observed(WITHIN, *WRITTEN, folder=tmp_path))
    assert not process.notes.get("disabled")
    loaders = [note["id"] for note in process.notes["loader"]]
    found = [set(written_of(process, one)) for one in loaders]
    both = [sorted(one | other) for one, other in zip(found[::2], found[1::2], strict=True)]
    assert dict(zip(WRITTEN, map(tuple, both), strict=True)) == WRITTEN


class Data:
    epoch = 0


def test_of_many_passes_few_are_looked_at(passes: int = 40) -> None:
    noted: list[dict[str, Any]] = []
    data = Data()
    looks = Datasets(lambda kind, **fields: noted.append(fields), lambda file: None)
    for epoch in range(passes):
        data.epoch = max(0, epoch - 20)
        looks.begins(SimpleNamespace(dataset=data), 1, place=7)
    assert [note["names"] for note in noted] == [["epoch"]]
    seen = looks._latest[7].get(data)
    assert seen is not None and seen[1] is not None
    assert seen[1].entries["epoch"].what == (int, 11)  # of the pass before the 33rd
