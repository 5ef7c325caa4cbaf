"""Commands of the workloads' tests leave nothing behind."""

from __future__ import annotations

import subprocess

import psutil
import pytest
from tests.workloads.scripts import finished


def test_a_command_that_takes_too_long_ends_with_its_sessions() -> None:
    """A rank of torchrun leads a session of its own, as ``setsid`` does here."""
    with pytest.raises(subprocess.TimeoutExpired):
        finished(["sh", "-c", "setsid sleep 987.125 & wait"], timeout=2)
    left = [p for p in psutil.process_iter(["cmdline"]) if "987.125" in (p.info["cmdline"] or ())]
    psutil.wait_procs(left, timeout=10)
    assert not [p for p in left if p.is_running()]
