"""The feeding guide's snippets run one after the other, as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guides" / "feed.md"


def test_the_snippets_run(tmp_path: Path) -> None:
    snippets = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), flags=re.M | re.S)
    assert len(snippets) >= 12
    script = tmp_path / "guide.py"
    script.write_text("\n\n".join(snippets))
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", str(script)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "PREFETCH_FACTORS is no setting of feeding; did you mean PREFETCH_FACTOR?" in done.stdout


def test_the_pages_it_names_are_there() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", GUIDE.read_text()):
        assert (GUIDE.parent / target).exists(), target
