"""A workload as found in a repository of its own: observed, patched by ``fix``, trained again, proven."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.workloads.scripts import ROOT, finished, imported

pytest.importorskip("torch")
pytest.importorskip("yaml")

FOLDER = ROOT / "workloads" / "landmarks"
HOTLOOP = (sys.executable, "-m", "hotloop")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The project alone, under git, with data beside it."""
    folder = tmp_path / "project"
    folder.mkdir()
    for path in FOLDER.glob("*.py"):
        shutil.copy(path, folder)
    shutil.copytree(FOLDER / "configs", folder / "configs")
    with imported(FOLDER, "data") as modules:
        modules["data"].make_data("tiny", 3, tmp_path).rename(tmp_path / "data")
    subprocess.run(["git", "init", "-q", folder], check=True)
    return folder


def observed(project: Path, name: str) -> Path:
    """Train for eight steps under ``hotloop run --evidence``; return the run's folder."""
    run = project.parent / name
    flags = ["--scale", "tiny", "--epochs", "2", "--data", "../data", "--out", f"{name}-out"]
    done = finished(
        [*HOTLOOP, "run", "--evidence", "--out", run, "--", sys.executable, "train.py", *flags], cwd=project
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return run


@pytest.mark.nightly
def test_what_fix_writes_applies_trains_and_computes_the_same(project: Path) -> None:
    """The guide's table of ignored settings, written: the loader reads its key, the flags are set right."""
    found = observed(project, "found")
    remedies = ("num-workers=1", "cudnn-benchmark", "not-deterministic")
    applied = [word for remedy in remedies for word in ("--apply", remedy)]
    fix = finished([*HOTLOOP, "fix", found, *applied], cwd=project)
    assert fix.returncode == 0, fix.stderr
    assert "checked: the patched copy runs to its first update with num_workers=1" in " ".join(
        fix.stderr.split()
    )
    assert (
        '+    train_loader = DataLoader(train_set, batch_size=1, sampler=sampler, num_workers=config["data"]'
        in fix.stdout
    )
    subprocess.run(["git", "apply"], cwd=project, input=fix.stdout, text=True, check=True)
    patched = observed(project, "patched")
    settings = {row["name"]: row for row in json.loads((patched / "report.json").read_text())["settings"]}
    assert settings["num_workers"]["in_effect"] == 1
    assert (settings["batch_size"]["configured"], settings["batch_size"]["in_effect"]) == (None, 1)  # S2-13
    assert settings["cudnn_benchmark"]["in_effect"] is True
    proof = finished([*HOTLOOP, "verify", found, patched, "--json"], cwd=project)
    assert proof.returncode == 0, proof.stdout
    assert json.loads(proof.stdout)["parity"] == "exact"
