"""Warnings while a run goes on: each said once, with what was seen; nothing of what is ordinary."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from hotloop.flow.alerts import Alerts
from hotloop.flow.course import Course, Pace
from hotloop.flow.observe import new_run_folder, observe
from hotloop.record.warned import said_in

SCRIPT = '''
"""Evaluates now and then, loses a worker, diverges, and waits for something."""
import os, signal, sys, time
import torch
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        return torch.ones(4)

def wait_for_a_file():
    time.sleep(2)

def main():
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = iter(DataLoader(Data(), batch_size=4, num_workers=2))
    for step in range(300):
        batch = next(batches)
        loss = model(batch).square().mean() * (float("nan") if step > 200 else 1.0)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.003)
        if step % 50 == 25:
            with torch.no_grad():
                for _ in range(10):
                    model(batch)
            time.sleep(0.1)
    try:
        os.kill(batches._workers[0].pid, signal.SIGKILL)
        time.sleep(1)
    except RuntimeError:
        pass
    time.sleep(0.5)
    wait_for_a_file()

main()
'''


def test_each_trouble_is_said_once_and_with_its_place(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    folder = new_run_folder(tmp_path / "run", ["train.py"])
    assert observe([sys.executable, str(script)], folder, patience=0.01).exit_code == 0
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("hotloop: warning: ")]
    told = {
        name: [line for line in lines if words in line]
        for name, words in {
            "loss": "the loss is nan by step ",
            "worker": "is gone without a word at step 300: killed, or crashed",
            "stuck": "no step for ",
        }.items()
    }
    assert {name: len(found) for name, found in told.items()} == dict.fromkeys(told, 1), lines
    assert len(lines) == 3
    assert "(usually " in told["stuck"][0]
    assert [f"hotloop: warning: {one['words']}" for one in said_in(folder)] == lines  # who watches sees them


def pace_of(seconds: np.ndarray, samples: np.ndarray) -> Pace:
    pace = Pace(window_s=1.0)
    for start in range(0, len(seconds), 10):
        pace.add(seconds[start : start + 10], samples[start : start + 10], start + 10)
    return pace


def test_decay_is_told_in_samples_and_not_in_steps() -> None:
    """S4: 3.64 steps/s of 8 samples beside 7.45 of 4 is no decay."""
    quick, slow = np.full(200, 1 / 7.45), np.full(200, 1 / 3.64)
    assert pace_of(np.r_[quick, slow], np.r_[np.full(200, 4), np.full(200, 8)]).fell_to(0.7) is None
    fell = pace_of(np.r_[quick, slow], np.full(400, 4)).fell_to(0.7)
    assert fell is not None
    assert fell == pytest.approx((29.8, 14.56), rel=0.01)


def test_a_training_that_comes_to_wait_for_data_is_told() -> None:
    pace, step = Pace(window_s=1.0), np.full(30, 0.05)
    for number in range(20):
        pace.add(step, np.ones(30), 30 * number, waited_s=0.05 if number < 10 else 0.9)
    assert pace.came_to_wait(0.2, 0.5) == pytest.approx((0.0333, 0.6), abs=0.001)
    assert pace.came_to_wait(0.2, 0.7) is None


def test_bursts_and_pauses_are_no_decay() -> None:
    """Eight workers hand over eight batches at once: more of the steps are quick, the rate is the same."""
    before, after = np.tile([0.1, 0.1, 0.1, 0.1], 100), np.tile([0.34, 0.02, 0.02, 0.02], 100)
    samples = np.full(800, 8)
    assert pace_of(np.r_[before, after], samples).fell_to(0.7) is None
    assert pace_of(np.r_[after, before], samples).fell_to(0.7) is None
    paused = before.copy()
    paused[::10] += 3.0  # what no row tells apart: seen in the mean, and not in the typical step
    assert pace_of(np.r_[before, paused], samples).fell_to(0.7) is None


class Followed:
    """A GPU that a run used and uses no more."""

    device_bytes, steps, retries, bad_losses = 1e9, 500, 0, 0


def test_an_idle_gpu_is_told_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    alerts = Alerts(Course(), said.append)
    lead = Followed()
    clock = 0
    for tick in range(300):
        clock = int(tick * 0.5e9) + 1
        alerts._look_at_gpus({"gpu0_util_ratio": 0.9 if tick < 60 else 0.0}, lead, clock)  # type: ignore[arg-type]
        if tick == 100:
            assert alerts._idle(lead, clock) == ""  # type: ignore[arg-type]
    assert "the GPU has been idle for 2 min 0 s, 500 steps so far" in alerts._idle(lead, clock)  # type: ignore[arg-type]
