"""The documentation as a site: built without a warning, so that no link leads nowhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.nightly
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("sphinx", reason="the extra docs is not installed")
    command = [
        sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", str(ROOT / "docs"),
        str(tmp_path),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first = (tmp_path / "index.html").read_text()
    assert "guides/what-if.html" in first
    assert (tmp_path / "search.html").exists()
