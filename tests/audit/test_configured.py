"""Configuration against reality: the landmarks guide's three mismatches, each with who decided otherwise."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from tests.running import hotloop, succeeded

CONFIG = """\
data:
  num_workers: 24
  batch_size: 16
  prefetch_factor: 4
training:
  amp: true
  cudnn_benchmark: true
"""
DATA = """\
import torch
from torch.utils.data import DataLoader, TensorDataset


def training_loader(cfg):
    data = TensorDataset(torch.zeros(64, 4), torch.zeros(64, 1))
    return DataLoader(data, cfg["data"]["batch_size"], num_workers=1)
"""
TRAIN = """\
import torch
import yaml

from data import training_loader


def seed_everything(seed):
    torch.manual_seed(seed)
    torch.backends.cudnn.benchmark = False


with open("config.yaml") as stream:
    cfg = yaml.safe_load(stream)
torch.backends.cudnn.benchmark = cfg["training"]["cudnn_benchmark"]
seed_everything(1)
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
mode = cfg["training"]["amp"]
for x, y in training_loader(cfg):
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=mode == "bf16"):
        loss = (net(x) - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("landmarks")
    for name, text in (("config.yaml", CONFIG), ("data.py", DATA), ("train.py", TRAIN)):
        (folder / name).write_text(text)
    succeeded(hotloop("run", "--out", "run", "--", sys.executable, "train.py", folder=folder))
    return folder


def test_each_value_that_was_not_in_effect_is_named_with_who_decided(project: Path) -> None:
    done = succeeded(hotloop("audit", "--run", "run", "--json", folder=project))
    answer = json.loads(done.stdout)
    found = {
        row["setting"]: (
            row["configured"],
            row["in_effect"],
            Path(row["where"]).name,
            row["by"] and (Path(row["by"]["file"]).name, row["by"]["line"], row["by"]["text"]),
        )
        for row in answer["configured"]
    }
    assert found == {
        "num_workers": (24, 1, "config.yaml:2", ("data.py", 7, "num_workers=1")),
        "prefetch_factor": (4, 2, "config.yaml:4", ("data.py", 7, "prefetch_factor is not passed")),
        "amp": (True, False, "config.yaml:6", ("train.py", 20, "compares amp with 'bf16'")),
        "cudnn_benchmark": (True, False, "config.yaml:7", ("train.py", 9, "sets cudnn_benchmark to False")),
        "batch_size": (16, 16, "config.yaml:3", None),
    }
    assert {f["id"] for f in answer["findings"]} >= {"config/dead-key", "config/ignored-value"}


def test_the_table_and_the_report_show_it(project: Path) -> None:
    table = hotloop("audit", "--run", "run", folder=project).stdout
    assert "! num_workers      24          1          config.yaml:2\n" in table
    assert "< train.py:9 sets cudnn_benchmark to False\n" in table
    report = hotloop("report", "run", folder=project).stdout
    assert "cudnn_benchmark is False, configured True (config.yaml:7); train.py:9 sets" in report
    assert max(len(line) for line in table.splitlines()) <= 80


def test_files_that_changed_since_the_run_are_pointed_out(project: Path, tmp_path: Path) -> None:
    os.utime(project / "data.py", (2_000_000_000, 2_000_000_000))
    assert "1 of the run's files changed since" in hotloop("audit", "--run", "run", folder=project).stderr
    missing = hotloop("audit", "--run", str(tmp_path / "none"), folder=project)
    assert missing.returncode == 2
    assert "Traceback" not in missing.stderr
