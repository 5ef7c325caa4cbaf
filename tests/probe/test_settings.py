"""What was in effect: flags, versions, autocast; and the profiler window where it was asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tests.running import run_observed, succeeded

SCRIPT = """
import torch
torch.manual_seed(0)
torch.set_num_threads(1)
torch.backends.cudnn.benchmark = True
torch.set_float32_matmul_precision("high")
net = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(20):
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=step % 2 == 0):
        loss = net(torch.randn(8, 16)).float().square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
torch.use_deterministic_algorithms(True)
print(repr(loss.item()))
"""


ANOMALY = """
import torch
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def step():
    net(torch.ones(2, 4)).square().mean().backward()
    optimizer.step()
{use}
"""


@pytest.mark.parametrize(
    ("use", "line"),
    [
        ("torch.autograd.set_detect_anomaly(True)\nfor _ in range(5): step()", 8),
        ("with torch.autograd.detect_anomaly(check_nan=False):\n    for _ in range(5): step()", 8),
    ],
)
def test_the_stacks_of_anomaly_detection_are_counted(tmp_path: Path, use: str, line: int) -> None:
    observed = succeeded(run_observed(ANOMALY.format(use=use), folder=tmp_path))
    assert "disabled" not in observed.notes
    (noted,) = observed.notes["anomaly"]
    assert noted["stacks"] == 30  # of three operations, and of what holds the gradients
    assert 0 < noted["seconds"] < 5
    first = observed.notes["torch"][0]
    assert (first["grad_anomaly"], first["set_by"]["grad_anomaly"][2]) == (True, line)


def test_without_anomaly_detection_nothing_is_counted(tmp_path: Path) -> None:
    observed = run_observed(ANOMALY.format(use="step()"), folder=tmp_path)
    assert "anomaly" not in observed.notes


def test_flags_in_effect_and_the_profile(tmp_path: Path) -> None:
    observed = succeeded(run_observed(SCRIPT, folder=tmp_path, env={"HOTLOOP_PROFILE": "1"}))
    plain = run_observed(SCRIPT, folder=tmp_path / "plain", observed=False)
    assert observed.stdout == plain.stdout
    assert "disabled" not in observed.notes

    assert observed.of("device") == []
    first, last = observed.notes["torch"]
    assert (first["when"], last["when"]) == ("first_step", "exit")
    assert first["version"] == torch.__version__
    assert first["cudnn_benchmark"] is True
    assert first["float32_matmul_precision"] == "high"
    assert first["threads"] == 1
    assert (first["deterministic_algorithms"], last["deterministic_algorithms"]) == (False, True)
    by = {name: (value, Path(file).name, line) for name, (value, file, line) in first["set_by"].items()}
    assert by["cudnn_benchmark"] == (True, "train.py", 5)
    assert by["float32_matmul_precision"] == ("high", "train.py", 6)
    assert by["threads"] == (1, "train.py", 4)
    assert "deterministic_algorithms" not in by
    assert last["set_by"]["deterministic_algorithms"][0::2] == [True, 15]

    (autocast,) = observed.notes["autocast"]
    assert autocast["dtype"] == "bfloat16"
    assert autocast["share"] == 0.5

    (profile,) = observed.notes["profile"]
    assert profile["steps"] == 4
    assert profile["kernels"] == []
    traced = json.loads(Path(profile["trace"]).read_text())["traceEvents"]
    assert any(event["name"] == "aten::addmm" for event in traced)


def test_a_script_that_profiles_itself_keeps_its_profiler(tmp_path: Path) -> None:
    script = SCRIPT.replace("for step", "prof = torch.profiler.profile(); prof.start()\nfor step")
    observed = succeeded(run_observed(script + "prof.stop()", folder=tmp_path, env={"HOTLOOP_PROFILE": "1"}))
    assert "profile" not in observed.notes
    assert any("profiles itself" in note["text"] for note in observed.notes["warning"])
