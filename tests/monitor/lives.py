"""Runs to watch: a real one that goes on until it is told to stop, and a long one of made rows."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from tests import running
from tests.record import crafted

from hotloop.record import rows as r
from hotloop.record.recording import ROW_DTYPE

TRAIN = """
import os, time, torch
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self): return int(os.environ.get("TRAIN_SAMPLES", 64))
    def __getitem__(self, index):
        time.sleep(0.001)
        return torch.full((8,), index % 64 / 64), torch.tensor([1.0])
torch.set_num_threads(1)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
end = time.monotonic() + float(os.environ.get("TRAIN_SECONDS", 90))
while not os.path.exists("stop") and time.monotonic() < end:
    for inputs, targets in DataLoader(Data(), batch_size=8):
        loss = ((model(inputs) - targets) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

#: Samples of a GPU as ``launch.machine`` has them.
GPU = {
    "gpu0_util_ratio": 0.45, "gpu0_memory_bytes": 12 << 30, "gpu0_memory_total_bytes": 80 << 30,
    "gpu0_power_w": 210.0, "gpu0_power_limit_w": 300.0, "gpu0_temperature_c": 61, "gpu0_sm_clock_mhz": 1410,
}  # fmt: skip


@contextmanager
def training(folder: Path, name: str, *words: str) -> Iterator[Path]:
    """``hotloop run`` of a training that goes on until ``folder/stop`` is there; its run folder."""
    (folder / "train.py").write_text(TRAIN)
    command = ("run", "--out", folder / name, "--", sys.executable, "train.py", *words)
    kwargs = {"folder": folder, "timeout": 60 + float(os.environ.get("TRAIN_SECONDS", 180))}
    run = threading.Thread(target=running.hotloop, args=command, kwargs=kwargs)
    run.start()
    try:
        while run.is_alive() and not (folder / name / "run.json").exists():
            run.join(0.02)
        yield folder / name
    finally:
        (folder / "stop").touch()
        run.join()


def long(folder: Path, num_steps: int) -> Path:
    """The recording, while it goes on, of so many steps of half a millisecond."""
    store = crafted.begun(folder)
    iterator = {"kind": "iterator", "id": 0, "loader": 1, "workers": []}
    crafted.write(store.raw_dir, crafted.gone_pid(), steps=0, rows=[(r.ITER, 2_000, 5_000)], notes=[iterator])
    rows = np.zeros((num_steps, len(crafted.STEP)), ROW_DTYPE)
    start = np.arange(1, num_steps + 1, dtype=np.uint64) * np.uint64(500_000)
    for at, (kind, duration) in enumerate(crafted.STEP):
        rows[:, at]["kind"], rows[:, at]["dur"], rows[:, at]["start"] = kind, duration, start
        start = start + np.uint64(duration + 1_000)
    with next(store.raw_dir.glob("*.rows")).open("ab") as file:
        file.write(rows.tobytes())
    begun = time.perf_counter_ns()
    store.take_in(([{"t_ns": begun + at * 10**9, "cpu_ratio": 0.5, **GPU} for at in range(4)], []))
    store.finish(crafted.Ended(end_ns=(num_steps + 2) * 500_000))
    run = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(
        json.dumps({**run, "complete": False, "exit_code": None, "wall_s": None})
    )
    return folder


def eventually(ask: Callable[[], Any], for_s: float = 60.0) -> Any:
    """What is asked for, as soon as there is something."""
    end = time.monotonic() + for_s
    while not (found := ask()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)
    return found
