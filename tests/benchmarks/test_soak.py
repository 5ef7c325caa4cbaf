"""Two minutes of what ``benchmarks/soak.py`` does for an hour: nothing grows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.nightly
def test_nothing_grows_in_two_minutes() -> None:
    script = Path(__file__).resolve().parents[2] / "benchmarks" / "soak.py"
    done = subprocess.run([sys.executable, script, "--minutes", "2"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
