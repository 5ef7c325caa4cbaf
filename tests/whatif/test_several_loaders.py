"""``hotloop what-if`` on loops over two loaders, or of short epochs, whose waits are of known length."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests import running

from hotloop.record.read import open_recording

pytestmark = [pytest.mark.alone, pytest.mark.nightly]  # what it measures is time

#: A step waits 5 ms itself, and 10 ms for each of its two batches.
SCRIPT = """
import os, sys, time, torch
from torch.utils.data import DataLoader, Dataset

if os.environ.get("AT_ONCE"):  # waits change no value
    time.sleep = lambda seconds: None
which, steps = sys.argv[1], int(sys.argv[2])
WORKERS = 1 if which == "workers" else 0
torch.manual_seed(0)
torch.set_num_threads(1)

class Samples(Dataset):
    def __init__(self, count):
        self.count = count
    def __len__(self):
        return self.count
    def __getitem__(self, index):
        time.sleep(0.005)
        return torch.full((4,), index / self.count)

def batches(count):
    loader = DataLoader(Samples(count), batch_size=2, shuffle=True, num_workers=WORKERS)
    while True:
        for number, batch in enumerate(loader):
            if which == "left" and number == 6:
                break
            yield batch

every = 5 if which == "some" else 1
labelled = batches(76 if which == "uneven" else 400)
unlabelled = batches(12 if which == "short" else 400)
if which == "anew":
    labelled = (batch for _ in range(1000) for batch in DataLoader(Samples(40), batch_size=2, shuffle=True))
if which in ("short", "left"):
    labelled = iter(lambda: torch.ones(4), None)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
total = 0.0
for step in range(steps):
    second = next(labelled) if step % every == 0 else None
    values = next(unlabelled)
    optimizer.zero_grad()
    loss = model(values).square().mean()
    if second is not None:
        loss = loss + model(second).square().mean()
    loss.backward()
    time.sleep(0.005)
    optimizer.step()
    total = 0.9 * total + loss.item()
sys.stderr.write(f"total {total!r}\\n")
"""


def what_if(folder: Path, which: str, *words: str, steps: int = 300) -> tuple[dict[str, Any], str]:
    found, _, said = asked(folder, SCRIPT, *words, "--", sys.executable, "train.py", which, str(steps))
    return found, said


def asked(folder: Path, script: str, *words: str) -> tuple[dict[str, Any], list[dict[str, Any]], str]:
    """What was found, the blocks, and what the script said at its end ("" where it was ended)."""
    command = ("-m", "hotloop", "what-if", "--out", "r", "--json", *words)
    done = running.python(*command, folder=folder, script=script)
    assert done.stdout, done.stderr
    (process,) = open_recording(folder / "r").ranks
    assert not process.notes.get("disabled")
    return json.loads(done.stdout), process.notes["block"], total(done.stderr)


def total(text: str) -> str:
    return next((line for line in text.splitlines() if line.startswith("total ")), "")


@pytest.mark.parametrize("which", ["both", "uneven", "anew", "workers"])
def test_the_last_loader_of_a_step_is_free_and_the_run_stays_bit_equal(tmp_path: Path, which: str) -> None:
    plain = running.python("train.py", which, "300", folder=tmp_path, script=SCRIPT, env={"AT_ONCE": "1"})
    found, said = what_if(tmp_path, which, "--go-on", "--budget", "20s")
    assert said == total(plain.stderr) != ""
    (row, *_) = found["rows"]
    assert row["ratio"] is not None
    if which != "workers":  # the other loader's worker takes as long
        assert row["ratio"] > 1.15
    assert row["words"].endswith("stayed as it was")
    assert found["ceiling"] is None
    assert found["step_alone_s"] is None


@pytest.mark.parametrize("which", ["short", "left"])
def test_epochs_of_six_batches_are_measured_over_several(tmp_path: Path, which: str) -> None:
    """Batches of the end of an epoch that the loop leaves are made for nothing: that costs no order."""
    plain = running.python("train.py", which, "400", folder=tmp_path, script=SCRIPT, env={"AT_ONCE": "1"})
    found, said = what_if(
        tmp_path, which, "--go-on", "--budget", "20s", "free-data", "num-workers=1", steps=400
    )
    assert said == total(plain.stderr) != ""
    free, workers = found["rows"][:2]
    assert free["ratio"] > 1.3
    assert 0.005 < found["step_alone_s"] < 0.014
    assert workers["ratio"] is None
    assert "hotloop run --apply num-workers=1" in workers["words"]


def test_candidates_are_also_measured_together_and_their_own_trials_are_no_evaluation(tmp_path: Path) -> None:
    words = ("--budget", "12s", "num-workers=2", "num-workers=3", "prefetch-factor=4", "foreach")
    found, _ = what_if(tmp_path, "workers", *words, steps=100_000)
    rows = {row["intervention"]: row for row in found["rows"] if row["method"] == "blocks"}
    assert set(rows) == {*words[2:], "together"}
    assert rows["together"]["ratio"] is not None
    assert rows["together"]["words"].startswith("num-workers=2 and prefetch-factor=4")
    assert rows["together"]["words"].endswith("train.py:22, stayed as it was")
