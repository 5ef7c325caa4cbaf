"""``hotloop what-if`` where epochs are short: what their starts and ends take is not paid with free data."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests import running
from tests.whatif.test_several_loaders import asked, total

pytestmark = [pytest.mark.alone, pytest.mark.nightly]  # what it measures is time

EPOCHS, BATCHES, SLOW_S = 22, 6, 0.06

#: An epoch is six batches. Its start waits in the sampler, its end for workers that take their time.
SCRIPT = f"""
import random, sys, time, torch
from multiprocessing.util import Finalize
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, get_worker_info

which, slow_s = sys.argv[1], float(sys.argv[2])
BATCHES = {BATCHES}

class Samples(Dataset):
    def __len__(self):
        return 4 * BATCHES
    def __getitem__(self, index):
        return torch.full((8,), index + random.random())

class Stream(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        for index in range(worker.id, 4 * BATCHES, worker.num_workers):
            yield torch.full((8,), index + random.random())

class Slow(RandomSampler):
    def __iter__(self):
        time.sleep(slow_s)
        return super().__iter__()

def lasts(worker):
    Finalize(None, time.sleep, args=(slow_s,), exitpriority=1)

torch.manual_seed(0)
torch.set_num_threads(1)
if which == "stream":
    loader = DataLoader(Stream(), batch_size=4, num_workers=2, worker_init_fn=lasts)
else:
    data = Samples()
    loader = DataLoader(data, batch_size=4, sampler=Slow(data), num_workers=2, worker_init_fn=lasts)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.0001)
total = 0.0
for epoch in range({EPOCHS}):
    for number, values in enumerate(loader):
        optimizer.zero_grad()
        loss = model(values).square().mean()
        loss.backward()
        optimizer.step()
        total = 0.9 * total + loss.item()
        if which == "left" and number == BATCHES - 2:
            break
sys.stderr.write(f"total {{total!r}}\\n")
"""


@pytest.mark.parametrize("which", ["left", "stream"])
def test_what_starts_and_ends_an_epoch_is_free_and_the_run_stays_bit_equal(
    tmp_path: Path, which: str
) -> None:
    # What it computes does not depend on how long it waits.
    plain = running.python("train.py", which, "0", folder=tmp_path, script=SCRIPT)
    options = ("--go-on", "--budget", "30s", "--width", "90%")
    command = ("--", sys.executable, "train.py", which, str(SLOW_S))
    found, blocks, said = asked(tmp_path, SCRIPT, *options, *command)
    assert said == total(plain.stderr) != ""
    valid = [note for note in blocks if note["valid"]]
    baseline = [note["mean_s"] for note in valid if note["name"] == "baseline"]
    free = [note["mean_s"] for note in valid if note["name"] == "free-data"]
    assert min(baseline) > SLOW_S / BATCHES
    assert min(free) < SLOW_S / BATCHES  # a start or an end within each epoch's steps would alone be more
    assert found["rows"][0]["ratio"] is not None
    assert found["rows"][0]["intervention"] == "free-data"
