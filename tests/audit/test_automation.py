"""The hook for pre-commit and the reusable workflow do what their files say."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SLOW = ROOT / "benchmarks" / "accuracy" / "cases" / "input_respawned_short_epochs.py"
RULE = "input/respawned-workers"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository with a training script, and ``hotloop`` on the path."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(SLOW.read_text())
    tool = tmp_path / "bin" / "hotloop"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT / "src"} exec {sys.executable} -m hotloop "$@"\n')
    tool.chmod(0o755)
    return tmp_path


def shell(text: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", **env}
    return subprocess.run(["bash", "-e", "-c", text], cwd=folder, env=env, text=True, capture_output=True)


def test_the_workflow_writes_sarif_and_annotations_and_fails_where_asked(folder: Path) -> None:
    workflow: Any = yaml.safe_load((ROOT / ".github/workflows/hotloop-audit.yml").read_text())
    steps = workflow["jobs"]["audit"]["steps"]
    audit = next(step for step in steps if step.get("name") == "hotloop audit")
    env = dict.fromkeys(audit["env"], "") | {"PATHS": "src", "CORES": "8"}
    done = shell(audit["run"], folder, **env)
    assert done.returncode == 0, done.stderr
    found = json.loads((folder / "hotloop.sarif").read_text())["runs"][0]["results"]
    assert RULE in [one["ruleId"] for one in found] and "::" in done.stdout
    assert shell(audit["run"], folder, **env | {"FAIL_ON": "info"}).returncode == 1
    assert not any("${{" in step.get("run", "") for step in steps), "an input never becomes text of a script"


@pytest.mark.nightly
def test_the_workflow_runs_both_sides_in_turns_and_takes_a_limit(folder: Path) -> None:
    workflow: Any = yaml.safe_load((ROOT / ".github/workflows/hotloop-compare.yml").read_text())
    steps = workflow["jobs"]["compare"]["steps"]
    speed = next(step for step in steps if step.get("name") == "hotloop compare")
    for side in ("base", "candidate"):
        shutil.copytree(folder / "src", folder / side)
    env = dict.fromkeys(speed["env"], "1") | {"COMMAND": f"{sys.executable} train.py", "LIMIT": "99%"}
    done = shell(speed["run"], folder, **env)
    assert "candidate: " in done.stderr and " by more than 99.0%" in done.stderr, done.stderr
    assert (folder / "compare.html").exists()
    assert not any("${{" in step.get("run", "") for step in steps), "an input never becomes text of a script"


def test_the_hook_takes_the_files_of_a_commit(folder: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    done = shell(shlex.join([*shlex.split(hook["entry"]), "--fail-on", "info", "src/train.py"]), folder)
    assert done.returncode == 1 and RULE in done.stdout
