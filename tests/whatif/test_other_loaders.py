"""``hotloop what-if`` on loops that change their loader, and on datasets that cannot live in a worker."""

from __future__ import annotations

import sys
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests import running
from tests.whatif.test_several_loaders import asked, total
from torch.utils.data import DataLoader, TensorDataset

from hotloop.hooks.registry import Hooks
from hotloop.whatif.live.feeder import Feeder

pytestmark = [pytest.mark.alone, pytest.mark.nightly]  # what it measures is time

SCRIPT = """
import os, sys, time, torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

if os.environ.get("AT_ONCE"):  # waits change no value
    time.sleep = lambda seconds: None

which, epochs = sys.argv[1], int(sys.argv[2])

class Samples(Dataset):
    def __len__(self):
        return 160
    def __getitem__(self, index):
        if which == "bound" and get_worker_info() is not None:
            raise RuntimeError("the handle belongs to another process")
        time.sleep(0.001)
        return torch.full((4,), index / 160)

class Pairs(Samples):
    pass

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data, total = Samples(), 0.0
beside = DataLoader(Pairs(), batch_size=1, shuffle=True) if which == "pair" else [None] * 160
for epoch in range(epochs):
    if which == "other" and epoch >= 2:
        loader = DataLoader(data, batch_size=2, shuffle=True, drop_last=True)
    elif not epoch:
        loader = DataLoader(data, batch_size=2, shuffle=True)
    batches = zip(loader, beside)
    for values, _ in batches:
        optimizer.zero_grad()
        loss = model(values).square().mean()
        loss.backward()
        time.sleep(0.004)
        optimizer.step()
        total = 0.9 * total + loss.item()
sys.stderr.write(f"total {total!r}\\n")
"""


def what_if(folder: Path, *words: str) -> tuple[dict[str, Any], list[dict[str, Any]], str]:
    """The rows by intervention, the blocks, and what the script said."""
    found, blocks, said = asked(folder, SCRIPT, *words)
    return {row["intervention"]: row for row in found["rows"]}, blocks, said


def test_an_epoch_that_is_left_with_its_end_taken_ahead_is_let_go() -> None:
    hooks = Hooks(lambda name, error: None)
    probe: Any = SimpleNamespace(torch=torch, hooks=hooks, loaders=None)
    feeder = Feeder(probe, lambda iterator: None)
    try:
        feeder.install()
        iterator = iter(DataLoader(TensorDataset(torch.arange(8.0)), batch_size=2))
        next(iterator)
        feeder.fill(iterator, 20)
        left = weakref.ref(iterator)
        del iterator
        assert left() is None
    finally:
        hooks.undo()


def test_a_loop_over_two_loaders_is_measured(tmp_path: Path) -> None:
    rows, _, _ = what_if(
        tmp_path, "--go-on", "--budget", "60s", "free-data",
        "--", sys.executable, "train.py", "pair", "5",
    )  # fmt: skip
    assert rows["free-data"]["ratio"] is not None


def test_a_loop_that_turns_to_another_loader_is_told_and_ended(tmp_path: Path) -> None:
    words = ("--out", "r", "--budget", "60s", "free-data")
    script = ("--", sys.executable, "train.py", "other", "100000")
    done = running.python("-m", "hotloop", "what-if", *words, *script, folder=tmp_path, script=SCRIPT)
    assert done.returncode == 1 and "nothing was measured: " in done.stderr
    assert "free-data: 50 updates went by without a batch of the DataLoader that drove the loop" in " ".join(
        done.stderr.split()
    )
    assert not total(done.stderr)  # it was ended


def test_workers_that_cannot_make_batches_are_refused_and_the_run_stays_bit_equal(tmp_path: Path) -> None:
    plain = running.python("train.py", "bound", "5", folder=tmp_path, script=SCRIPT, env={"AT_ONCE": "1"})
    rows, _, said = what_if(
        tmp_path, "--go-on", "--budget", "60s", "free-data", "num-workers=2",
        "--", sys.executable, "train.py", "bound", "5",
    )  # fmt: skip
    assert said == total(plain.stderr) != ""
    assert rows["num-workers=2"]["words"].endswith("RuntimeError: the handle belongs to another process")
