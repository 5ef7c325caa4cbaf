"""The baking guide's snippets run one after the other, and the shell session shows what the command says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests import running

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guides" / "bake.md"


@pytest.mark.nightly
def test_the_snippets_and_the_session_run(tmp_path: Path) -> None:
    text = GUIDE.read_text()
    snippets = re.findall(r"^```python\n(.*?)^```", text, flags=re.M | re.S)
    assert len(snippets) == 6
    (tmp_path / "scans.py").write_text(snippets[0])
    (tmp_path / "guide.py").write_text("\n\n".join(snippets))
    running.succeeded(running.python("-W", "error::UserWarning", "guide.py", folder=tmp_path))
    # The snippets baked __main__.Scans: to the command that is other code.
    made = running.python(
        "-m", "hotloop", "bake", "scans:Scans", "scans.baked", "--overwrite", folder=tmp_path
    )
    assert made.returncode == 0, made.stderr
    said = re.search(r"hotloop: wrote (600 samples, .*?), to ", text)
    assert said is not None
    assert said[1] in made.stderr
    (tmp_path / "scans.py").write_text(snippets[0].replace("side=64", "side=32"))
    stale = running.python("-m", "hotloop", "bake", "scans:Scans", "scans.baked", folder=tmp_path)
    assert stale.returncode == 2
    error = re.search(r"what the dataset was before: (.*)", text)
    assert error is not None
    assert error[1] in stale.stderr
