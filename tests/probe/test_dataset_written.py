"""What changes in a dataset while it is gone through: workers would not see it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.running import run_observed

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

    class Sized(Noisy):
        def __getitem__(self, i):
            self.noise.set_size(1 + i % 3)
            return self.noise(self.x[i]), self.labels[i], i

    WHICH = sys.argv[1]
    kinds = {"kept": Kept, "noisy": Noisy, "resized": Noisy, "sized": Sized, "reseeded": Sized}
    data = kinds.get(WHICH, Data)()
    for epoch in range(3):
        for x, y, i in DataLoader(data, 2, num_workers=int(WHICH == "workers")):
            if WHICH == "mined" or WHICH == "workers":
                data.hard[i.numpy()] = x.mean(1).numpy()
            if WHICH == "resized":
                data.noise.size += 1
            if WHICH == "reseeded":
                data.noise.seed += 1
            if WHICH == "marked":
                data.mark(int(i[0]))
            data.seen[i.numpy()] += 1
"""


@pytest.mark.parametrize(
    ("which", "within"),
    [
        ("mined", ["hard"]),
        ("marked", ["labels"]),
        ("kept", ["last"]),
        ("none", []),
        ("noisy", []),
        ("sized", []),
        ("resized", ["noise.size"]),
        ("reseeded", ["noise.seed"]),
        ("workers", ["hard"]),
    ],
)
def test_what_is_written_while_samples_are_made_of_it_is_noted(
    tmp_path: Path, which: str, within: list[str]
) -> None:
    process = run_observed(WITHIN, which, folder=tmp_path)
    assert process.returncode == 0, process.stderr
    assert not process.notes.get("disabled")
    found = [name for note in process.notes.get("dataset_written", ()) for name in note["names"]]
    assert list(dict.fromkeys(found)) == within
