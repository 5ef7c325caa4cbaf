"""What is uploaded: the wheel and the source distribution, as twine checks them."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.nightly
def test_wheel_and_sdist_pass_twine_and_every_link_is_absolute(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    files = sorted(map(str, tmp_path.iterdir()))
    assert len(files) == 2
    checked = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *files], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        names = wheel.namelist()
        text = wheel.read(next(name for name in names if name.endswith("METADATA"))).decode()
    assert not re.findall(r"\]\((?!https?:|#)[^)]*\)", text)
    assert any(name.endswith("man1/hotloop.1") for name in names)
