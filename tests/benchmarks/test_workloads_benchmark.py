"""The benchmark of the training systems: variants take turns, losses and ratios come out, nothing is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytest.importorskip("torch")
pytest.importorskip("yaml")

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "workloads.py"


def benchmark(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    env = {**os.environ, "TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}  # what it starts names the folder
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)


@pytest.mark.nightly
@pytest.mark.alone  # what it measures is time
def test_variants_take_turns_on_the_same_training(tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    done = benchmark(
        tmp_path, "landmarks", "--scale", "tiny", "--variants", "as_found", "cured-compact",
        "--rounds", "2", "--seconds", "0.2", "--out", str(out),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(out.read_text())
    found, cured = result["variants"]
    assert [found["variant"], cured["variant"]] == ["as_found", "cured-compact"]
    assert len(found["turns"]) == len(cured["turns"]) == 2
    assert "a turn of each before these does not count" in done.stdout
    assert found["left_out_samples_per_s"] > 0
    assert {"torch", "numpy", "hotloop", "python", "cores", "commit"} <= set(result["machine"])
    assert found["ratio"] == 1.0
    assert cured["ratio"] > 1.5  # the redrawn targets are most of a step, whatever the machine does
    assert cured["largest_loss_difference"] < 1e-2
    assert found["phases_s"]["fwd"] > cured["phases_s"]["fwd"]
    assert "the guide says: 5-10x" in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines() if "written to" not in line)
    left = [p for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(p.info["cmdline"] or ())]
    assert left == []


def test_a_variant_that_fails_is_said(tmp_path: Path) -> None:
    done = benchmark(tmp_path, "landmarks", "--scale", "tiny", "--variants", "guide-compact")
    assert done.returncode == 1
    assert "the parts of guide are" in done.stderr
