"""The feeding benchmarks: ratios within a round, a loader that loses samples is none, no GPU needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from tests.workloads.scripts import imported

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / "feed"
NAMES = ("drive", "environments", "harness", "loaders", "memory", "run", "sources", "transport")


@pytest.fixture(scope="module")
def modules() -> Iterator[dict[str, ModuleType]]:
    with imported(FOLDER, *NAMES) as found:
        yield found


def test_ratio_is_taken_within_rounds(modules: dict[str, ModuleType]) -> None:
    """The machine slows down tenfold between two rounds: the ratio does not notice."""
    seen = {
        "slow": {"results": [{"round": 0, "value": 100.0}, {"round": 1, "value": 10.0}], "failure": ""},
        "fast": {"results": [{"round": 0, "value": 300.0}, {"round": 1, "value": 30.0}], "failure": ""},
        "gone": {"results": [], "failure": "no environment"},
    }
    slow, fast, gone = modules["harness"].summarise(seen, "slow")
    assert slow["ratio"]["median"] == 1
    assert fast["ratio"] == {"median": 3.0, "low": 3.0, "high": 3.0}
    assert gone["failure"] == "no environment"
    assert modules["harness"].ratio([slow, fast, gone], "fast", "gone") is None


def test_targets_say_when_they_are_not_met(modules: dict[str, ModuleType]) -> None:
    found = {"median": 1.05, "low": 1.0, "high": 1.2}
    assert modules["harness"].at_least("x", 1.1, found).met is False
    assert modules["harness"].at_most("x", 1.1, found).met is True
    assert modules["harness"].at_least("x", 1.1, None).met is None


def test_epoch_that_loses_a_sample_is_no_result(modules: dict[str, ModuleType]) -> None:
    data = torch.zeros(2, 3)
    whole = [(data, torch.tensor([0, 3])), (data, torch.tensor([2, 1]))]
    modules["drive"].check(whole, {"count": 4})
    twice = [(data, torch.tensor([0, 3])), (data, torch.tensor([3, 1]))]
    with pytest.raises(AssertionError, match="3 of them different"):
        modules["drive"].check(twice, {"count": 4})


@pytest.mark.nightly
def test_device_part_runs_without_a_device(tmp_path: Path) -> None:
    out = tmp_path / "feed.json"
    script = str(ROOT / "benchmarks" / "gpu" / "feed.py")
    size = ["--rounds", "1", "--seconds", "0", "--workers", "1", "--count", "96", "--side", "8"]
    small = ["--device", "cpu", "--batch-size", "8", *size]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    subprocess.run([sys.executable, script, *small, "--out", str(out)], check=True, env=env, timeout=240)
    result = json.loads(out.read_text())
    assert set(result["bandwidth"]) == {"plain pinned copy", "Loader", "DataLoader"}
    assert result["waiting"]["Loader"]["step_s"]["median"] > 0
    assert "| Loader |" in out.with_suffix(".md").read_text()
