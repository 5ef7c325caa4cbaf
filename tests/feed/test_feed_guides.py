"""The guides' snippets run, one after the other, as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: What a reader has already where a page begins with a loop of theirs.
OWN = """
import torch
from torch.utils.data import TensorDataset
dataset = TensorDataset(torch.zeros(200, 3, 8, 8), torch.arange(200))
device = "cpu"
"""


@pytest.mark.parametrize(
    ("page", "before", "shorter"),
    [
        ("README.md", OWN, {"pin_memory=True": "pin_memory=False"}),  # warned of where nothing can be pinned
        ("docs/guides/feed.md", "", {}),
        ("docs/guides/hit-rate.md", "", {}),
        ("docs/guides/bake.md", "", {"600": "64"}),
    ],
)
def test_every_snippet_runs(page: str, before: str, shorter: dict[str, str], tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
    assert blocks
    text = "\n".join([before, *blocks])
    for long, short in shorter.items():
        text = text.replace(long, short)
    script = tmp_path / "guide.py"
    script.write_text(text)
    run = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", script.name],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert run.returncode == 0, run.stderr
