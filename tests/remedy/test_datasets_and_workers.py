"""Datasets that workers change, cannot make, or would not see a change of: the run stays what it was."""

from __future__ import annotations

import io
import json
import platform
import random
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.running import Observed, run_observed, succeeded
from torch.utils.data import DataLoader, Dataset, dataloader

from hotloop.probe.observers.open_files import open_file
from hotloop.remedy import catalogue
from hotloop.remedy.live.trial import why_not

SCRIPT = """
import multiprocessing as mp, sys, torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

which, workers = sys.argv[1], int(sys.argv[2])
mp.set_start_method((sys.argv[3:] or ["fork"])[0])

class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.arange(6.0))

class Bound(Dataset):
    def __len__(self):
        return 6
    def __getitem__(self, index):
        if get_worker_info() is not None:
            raise RuntimeError("the handle belongs to another process")
        return torch.rand(()) + index

class Scale:
    by = 1

class Mined(Dataset):
    def __init__(self):
        self.values, self.pairs, self.scale = torch.arange(6.0), list(range(6)), Scale()
    def __len__(self):
        return 6
    def __getitem__(self, index):
        return self.values[self.pairs[index]] * self.scale.by

class Counts(Mined):
    calls = 0
    def __getitem__(self, index):
        self.calls += 1
        return self.values[index] + self.calls

class Shared(Mined):
    def __init__(self):
        super().__init__()
        self.epoch, self.difficulty = mp.Value("i", 0), torch.zeros(6).share_memory_()
    def __getitem__(self, index):
        return self.values[index] + self.epoch.value * 0 + self.difficulty[index] * 0

class Hard(Mined):
    def __init__(self):
        super().__init__()
        self.hard = [0] * 6
    def __getitem__(self, index):
        return self.values[index] + self.hard[index]

def change(data, epoch):
    if epoch == 1:
        data.values = data.values + 10
    if epoch == 2:
        data.pairs[0] = 5
    if epoch == 3:
        data.scale.by = 3

def opens(worker):
    data = get_worker_info().dataset
    data.values = data.values + 100

torch.manual_seed(0)
kinds = {"stream": Stream, "bound": Bound, "counted": Counts, "shared": Shared, "written": Hard}
data = kinds.get(which, Mined)()
init = opens if which == "opened" else None
loader = DataLoader(data, batch_size=2, num_workers=workers, shuffle=which != "stream", worker_init_fn=init,
                    persistent_workers=which == "kept")
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for epoch in range(5):
    if which == "mined":
        change(data, epoch)
    for values in loader:
        optimizer.zero_grad()
        model(values[:, None]).mean().backward()
        optimizer.step()
        print(epoch, values.tolist())
        if which == "written":
            loader.dataset.hard[epoch] += 1
        if which == "shared":
            data.epoch.value = epoch
            data.difficulty[0] += 1
print(torch.rand(2).tolist(), [p.tolist() for p in model.parameters()])
"""

STREAM = "an iterable dataset: its workers decide what is read, and in which order"
AGAIN = 'each worker would run train.py again, which has no `if __name__ == "__main__":`'


def both(folder: Path, remedy: str, *args: str) -> tuple[Observed, str]:
    """A run with remedies that prints what one without them does, and the last remedy's status."""
    env = catalogue.environment(map(catalogue.parse, remedy.split()))
    done = succeeded(run_observed(SCRIPT, *args, folder=folder, env=env))
    plain = run_observed(SCRIPT, *args, folder=folder / "plain", observed=False)
    assert done.stdout == plain.stdout != ""
    assert not done.notes.get("disabled")
    notes: list[dict[str, Any]] = done.notes["remedy"]
    return done, str(notes[-1]["status"])


@pytest.mark.parametrize(
    ("remedy", "args", "status"),
    [
        ("num-workers=2", "stream 0", STREAM),
        ("no-workers", "stream 2", STREAM),
        ("no-workers", "kept 2", "in effect"),  # torch draws a seed for each iterator, none where they stay
        ("num-workers=2", "mined 0 forkserver", f"left as it was: {AGAIN}"),
        ("cache-samples ring-loader", "opened 1", "in effect"),  # set up with the script's dataset
        ("cache-samples persistent-workers", "opened 1", "in effect"),
    ],
)
def test_samples_and_their_order_stay_whoever_reads_them(
    tmp_path: Path, remedy: str, args: str, status: str
) -> None:
    assert both(tmp_path, remedy, *args.split())[1] == status


def test_a_dataset_that_cannot_live_in_a_worker_stays_where_it_is(tmp_path: Path) -> None:
    done, status = both(tmp_path, "num-workers=2", "bound", "0")
    assert status.endswith("cannot make its batches: RuntimeError: the handle belongs to another process")
    assert not any(note["workers"] for note in done.notes["iterator"])


def test_samples_that_depend_on_those_before_them_are_made_where_they_were(tmp_path: Path) -> None:
    done, _ = both(tmp_path, "num-workers=2 persistent-workers", "counted", "0")
    statuses = {note["id"]: note["status"] for note in done.notes["remedy"]}
    words = "its samples depend on those made before them (calls), and each worker would have its own"
    assert statuses["num-workers"] == f"left as it was: {words}"
    assert not any(note["workers"] for note in done.notes["iterator"])


def test_what_is_written_to_shared_memory_keeps_no_workers_away(tmp_path: Path) -> None:
    done, _ = both(tmp_path, "num-workers=2", "shared", "0")
    assert [note["status"] for note in done.notes["remedy"]][-1] == "in effect"
    assert all(note["workers"] for note in done.notes["iterator"])


def test_workers_go_once_the_loop_was_seen_to_write_to_the_dataset(tmp_path: Path) -> None:
    env = catalogue.environment([catalogue.parse("num-workers=2")])
    done = succeeded(run_observed(SCRIPT, "written", "0", folder=tmp_path, env=env))
    status = done.notes["remedy"][-1]["status"]
    assert status.startswith("left as it was from the next pass on: the loop wrote hard of the dataset")
    workers = [bool(note["workers"]) for note in done.notes["iterator"]]
    assert workers[0]
    assert not workers[-1]


ONE = {"num_workers": 1, "prefetch_factor": 2}


class Drawn(Dataset[Any]):
    """Samples that draw from every generator there is."""

    def __init__(self) -> None:
        self.own = np.random.default_rng(0)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.rand(2) + random.random() + np.random.rand() + self.own.random()


def test_random_samples_are_the_same_from_the_same_states() -> None:
    assert why_not(dataloader, torch, DataLoader(Drawn(), shuffle=True), ONE) == ""


class Held(Dataset[Any]):
    """Samples beside whatever a dataset holds."""

    def __init__(self, held: Any) -> None:
        self.held = {"by name": [held]}

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> float:
        return float(index)


@pytest.mark.parametrize("in_memory", [True, False])
def test_workers_do_not_share_the_position_of_a_file(in_memory: bool) -> None:
    with io.BytesIO() if in_memory else Path(__file__).open("rb") as file:
        why = why_not(dataloader, torch, DataLoader(Held(file)), ONE)
    shared = f"what the dataset holds open must not be shared by processes: {__file__}"
    assert why == ("" if in_memory else shared)


def test_handles_written_in_c_are_known_by_the_module_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = type("Environment", (), {"__module__": "builtins"})
    assert open_file(Held(handle())) == ""
    monkeypatch.setitem(sys.modules, "lmdb", SimpleNamespace(Environment=handle))
    assert open_file(Held(handle())) == "lmdb.Environment"


def test_batches_that_cannot_be_sent_are_not_waited_for() -> None:
    loader = DataLoader(Held(None), collate_fn=lambda samples: lambda: samples)
    why = why_not(dataloader, torch, loader, ONE)
    assert why.startswith("a worker cannot make its batches: ")
    assert "pickle" in why.lower() or "local object" in why.lower()


def test_kept_workers_see_whatever_the_script_changed_in_the_dataset(tmp_path: Path) -> None:
    done, status = both(tmp_path, "persistent-workers", "mined", "1")
    assert status == "in effect, with fresh workers before 3 epochs: the dataset had changed"
    workers = [json.dumps(note["workers"]) for note in done.notes["iterator"]]
    assert len(set(workers[:4])) == 4
    assert workers[3] == workers[4]  # nothing changed


LOOKED_AT = """
import sys, torch
from torch.utils.data import DataLoader, Dataset, Subset, WeightedRandomSampler

way = sys.argv[1]

class Shapes(Dataset):
    reads = []
    def __init__(self):
        self.names = [f"{i}.png" for i in range(12)]
    def __len__(self):
        return len(self.names)
    def __getitem__(self, index):
        Shapes.reads.append(index)
        x = torch.arange(6.0).reshape(2, 3).t() + index
        return {"x": x, "at": (index, 0.5 * index), "name": self.names[index]}

def padded(samples):
    return {"x": torch.stack([s["x"] for s in samples]), "name": [s["name"] for s in samples]}

def made(data):
    options = {"batch_size": 5, "shuffle": True}
    if way == "collate":
        options["collate_fn"] = padded
    if way == "drawn":
        options = {"batch_size": 4, "sampler": WeightedRandomSampler(torch.ones(12), 14), "drop_last": True}
    return DataLoader(data, **options)

torch.manual_seed(0)
data = Subset(Shapes(), range(2, 12)) if way == "subset" else Shapes()
loader, check = made(data), DataLoader(data, batch_size=3)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(4):
    if way == "anew":
        loader = made(data)
    for batch in loader:
        optimizer.zero_grad()
        loss = model(batch["x"]).mean()
        loss.backward()
        optimizer.step()
        print(loss.item(), batch["name"], batch.get("at"), batch["x"].stride())
    print(type(loader.dataset).__name__, loader.collate_fn.__name__, loader.dataset is data)
    with torch.no_grad():
        print([model(batch["x"]).mean().item() for batch in check])
print(len(Shapes.reads), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "way",
    [
        "plain",
        "drawn",
        *(pytest.param(way, marks=pytest.mark.nightly) for way in ("collate", "subset", "anew")),
    ],
)
def test_a_cached_dataset_is_read_once_and_looks_as_it_did(tmp_path: Path, way: str) -> None:
    reads = {}
    for name, remedies in (("plain", []), ("cached", ["cache-samples"])):
        env = catalogue.environment(map(catalogue.parse, remedies))
        done = succeeded(run_observed(LOOKED_AT, way, folder=tmp_path / name, env=env))
        reads[name] = done.stdout, int(done.stderr.split()[-1])
    assert reads["cached"][0] == reads["plain"][0] != ""
    # Once for training, once for the first evaluation, and a few to see whether samples are random.
    assert reads["plain"][1] > 70
    assert reads["cached"][1] < 48


SIZES = """
import torch
from torch.utils.data import DataLoader, Dataset

class Images(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        index, size = index
        return torch.full((size,), float(index))

model = torch.nn.Linear(3, 1)
loader = DataLoader(Images(), batch_sampler=[[(0, 3), (2, 3)], [(1, 3), (3, 3)]])
for epoch in range(2):
    for batch in loader:
        model(batch).sum().backward()
"""


def test_a_cache_says_where_samples_have_more_than_a_number(tmp_path: Path) -> None:
    env = catalogue.environment([catalogue.parse("cache-samples")])
    done = succeeded(run_observed(SIZES, folder=tmp_path, env=env))
    status = [note["status"] for note in done.notes["remedy"]][-1]
    assert status.startswith("not cached: a sample cannot be read by its number: TypeError: ")


class Refusing(Held):
    """A dataset that explains itself over several lines."""

    def __getitem__(self, index: int) -> float:
        raise RuntimeError("the table was opened\nby the process that made this dataset")


def test_all_that_a_worker_says_is_told_without_its_traceback() -> None:
    why = why_not(dataloader, torch, DataLoader(Refusing(None)), ONE)
    words = "RuntimeError: the table was opened by the process that made this dataset"
    assert why == f"a worker cannot make its batches: {words}"


LARGE = """
import resource, torch
from torch.utils.data import DataLoader, Dataset

class Images(Dataset):
    def __init__(self):
        self.images = torch.rand(32, 3, 128, 128)
    def __len__(self):
        return 32
    def __getitem__(self, index):
        return self.images[index] * 2, self.images[index] + 1

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Conv2d(3, 8, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Images(), batch_size=8, shuffle=True)
    for epoch in range(8):
        if epoch == 4:
            before = faults()
        for images, others in loader:
            loss = model(images).square().mean() + others.mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print((faults() - before) // 16, repr(loss.item()))
"""


@pytest.mark.nightly
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another heap")
def test_memory_that_batches_out_of_a_cache_free_is_not_mapped_anew(tmp_path: Path) -> None:
    env = catalogue.environment([catalogue.parse("cache-samples")])
    plain = run_observed(LARGE, folder=tmp_path / "plain", observed=False)
    done = run_observed(LARGE, folder=tmp_path / "cached", env=env)
    faults, loss = done.stdout.split()
    assert loss == plain.stdout.split()[1]
    assert int(faults) < 500  # 2,266 a step; three samples are read again before each epoch
    assert [note["status"] for note in done.notes["remedy"]][-1] == "in effect"


UNLIKE = """
import torch
from torch.utils.data import DataLoader, TensorDataset

class Unlike(DataLoader):
    def __eq__(self, other):
        raise RuntimeError("nobody is to compare loaders")
    __hash__ = None

torch.multiprocessing.set_start_method("fork")
loader = Unlike(TensorDataset(torch.arange(6.0)), 2, shuffle=True)
for epoch in range(2):
    print(sum(float(x.sum()) for x, in loader))
"""


def test_a_loader_that_cannot_be_hashed_gets_workers_too(tmp_path: Path) -> None:
    env = catalogue.environment([catalogue.parse("num-workers=1")])
    done = run_observed(UNLIKE, folder=tmp_path, env=env)
    assert done.stdout.split() == ["15.0", "15.0"]
    assert not done.notes.get("disabled")
    assert done.notes["remedy"][-1]["status"].startswith("in effect")
