"""Traces that torch.profiler recorded here, on the CPU: the real format, against torch's own sums."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests import running
from tests.running import SRC, succeeded

from hotloop.logs.trace import analyze

SCRIPT = """\
import json
import time

import torch
from torch import nn
from torch.profiler import profile, schedule
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.randn(16), index % 4


def record(name, **options):
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with profile(schedule=schedule(wait=1, warmup=1, active=4, repeat=1), **options) as profiler:
        for x, y in DataLoader(Slow(), batch_size=8):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            profiler.step()
    profiler.export_chrome_trace(name)
    return profiler


plain = record("plain.json.gz", record_shapes=True)
sums = {row.key: [row.count, row.self_cpu_time_total] for row in plain.key_averages()}
with open("sums.json", "w") as stream:
    json.dump(sums, stream)
record("stack.json", with_stack=True)
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    succeeded(running.python("train.py", folder=folder, script=SCRIPT))
    return folder


def sections(path: Path) -> dict[str, Any]:
    return {section.title: section.data for section in analyze(path).sections}


def test_where_a_step_on_the_cpu_goes(recorded: Path) -> None:
    part = analyze(recorded / "plain.json.gz")
    shares = {phase.name: phase.share for phase in part.phases}
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["data_wait"] > 0.5
    assert {"forward", "backward", "optimizer"} <= set(shares)
    assert [finding.id for finding in part.findings] == ["input/single-process"]
    assert part.findings[0].severity == "high"
    assert "No device in the trace" in part.verdict
    assert (part.source.skipped, part.source.notes) == (0, ())


def test_operators_are_those_of_the_profilers_own_table(recorded: Path) -> None:
    found = sections(recorded / "plain.json.gz")["Longest operators, without what they call (per step)"]
    sums = json.loads((recorded / "sums.json").read_text())
    assert len(found["rows"]) > 20
    for row in found["rows"]:
        count, self_us = sums[row["name"]]
        assert row["count"] == count
        assert row["seconds"] * 1e6 == pytest.approx(self_us, abs=0.01 * count + 0.01)


def test_a_stack_tells_the_function(recorded: Path) -> None:
    part = analyze(recorded / "stack.json")
    (finding,) = (finding for finding in part.findings if finding.id == "input/single-process")
    line = next(number for number, text in enumerate(SCRIPT.splitlines(), 1) if "__getitem__" in text)
    where = finding.where
    assert where is not None
    assert (where.file, where.line, where.function) == ("train.py", line, "__getitem__")
    assert "Python functions" in part.source.recognized


def test_the_command_reads_it_without_torch(recorded: Path) -> None:
    code = (
        "import sys; from hotloop.cli.main import main; status = main(sys.argv[1:]); "
        "sys.exit('torch' in sys.modules or status)"
    )
    command = [sys.executable, "-c", code, "analyze", str(recorded / "plain.json.gz")]
    environment = os.environ | {"PYTHONPATH": str(SRC)}
    text = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert text.stderr == ""
    assert "input/single-process" in text.stdout
    assert all(len(line) <= 80 for line in text.stdout.splitlines())
    done = subprocess.run([*command, "--json"], env=environment, capture_output=True, text=True, check=True)
    document = json.loads(done.stdout)
    assert document["sources"][0]["kind"] == "torch.profiler trace"
    assert document["findings"][0]["id"] == "input/single-process"
    assert len(document["throughput"]) == 4
