"""The feeding guides' snippets run one after the other, as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests import running

ROOT = Path(__file__).resolve().parents[2]
GUIDES = ROOT / "docs" / "guides"
PAGES = [GUIDES / "feed.md", GUIDES / "hit-rate.md", ROOT / "README.md"]

#: The README begins with what its reader has; where nothing can be page-locked, torch warns.
OWN = """
import torch
from torch.utils.data import TensorDataset

dataset = TensorDataset(torch.zeros(200, 3, 8, 8), torch.arange(200))
device = "cpu"
"""


def run(page: Path, folder: Path) -> str:
    snippets = re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.M | re.S)
    assert snippets
    if page.name == "README.md":
        snippets = [OWN, *(text.replace("pin_memory=True", "pin_memory=False") for text in snippets)]
    script = folder / "guide.py"
    script.write_text("\n\n".join(snippets))
    done = running.succeeded(running.python("-W", "error::UserWarning", script, folder=folder))
    return done.stdout


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.name)
def test_the_snippets_run(page: Path, tmp_path: Path) -> None:
    run(page, tmp_path)


def test_the_feeding_guide_runs_and_names_the_dead_key(tmp_path: Path) -> None:
    said = run(PAGES[0], tmp_path)
    assert "PREFETCH_FACTORS is no setting of feeding; did you mean PREFETCH_FACTOR?" in said
