"""The baking guide's snippets run one after the other, and the shell session shows what the command says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guides" / "bake.md"


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.nightly
def test_the_snippets_and_the_session_run(tmp_path: Path) -> None:
    text = GUIDE.read_text()
    snippets = re.findall(r"^```python\n(.*?)^```", text, flags=re.M | re.S)
    assert len(snippets) == 6
    (tmp_path / "scans.py").write_text(snippets[0])
    (tmp_path / "guide.py").write_text("\n\n".join(snippets))
    done = run(tmp_path, "-W", "error::UserWarning", "guide.py")
    assert done.returncode == 0, done.stderr
    # The snippets baked __main__.Scans: to the command that is other code.
    made = run(tmp_path, "-m", "hotloop", "bake", "scans:Scans", "scans.baked", "--overwrite")
    assert made.returncode == 0, made.stderr
    said = re.search(r"hotloop: wrote (600 samples, .*?), to ", text)
    assert said is not None
    assert said[1] in made.stderr
    (tmp_path / "scans.py").write_text(snippets[0].replace("side=64", "side=32"))
    stale = run(tmp_path, "-m", "hotloop", "bake", "scans:Scans", "scans.baked")
    assert stale.returncode == 2
    error = re.search(r"what the dataset was before: (.*)", text)
    assert error is not None
    assert error[1] in stale.stderr


def test_the_pages_it_names_are_there() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", GUIDE.read_text()):
        assert (GUIDE.parent / target).exists(), target
