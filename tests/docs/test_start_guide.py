"""The commands of the tutorial's table are run as they stand, on a script like a reader's."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from pathlib import Path

import pytest
from tests.running import hotloop, succeeded
from tests.waiting import waiting

GUIDE = (Path(__file__).resolve().parents[2] / "docs/guides/start.md").read_text()
ROWS = dict(re.findall(r"^\| ([^|]+?) \| `(hotloop run [^`]+)`", GUIDE, flags=re.M))

SCRIPT = waiting(192, 0)


@pytest.mark.parametrize(
    "start",
    [
        "Python",
        pytest.param("a shell script", marks=pytest.mark.nightly),
        pytest.param("torchrun", marks=pytest.mark.nightly),
        pytest.param("Accelerate", marks=pytest.mark.nightly),
    ],
)
def test_every_way_to_start_that_there_is_here_is_observed(start: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    script = tmp_path / "train.sh"
    script.write_text("#!/bin/sh\npython train.py\n")
    script.chmod(0o755)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    succeeded(hotloop(*shlex.split(ROWS[start])[1:], folder=tmp_path, env={"PATH": path}))
    (run,) = (tmp_path / "hotloop-runs").iterdir()
    assert json.loads((run / "report.json").read_text())["num_steps"] == 96
