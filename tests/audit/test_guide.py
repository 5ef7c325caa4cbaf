"""The guide's example is real: its script gives the output that stands under it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.running import hotloop

ROOT = Path(__file__).resolve().parents[2]


def test_the_guide_shows_what_the_audit_prints(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "guides" / "audit.md").read_text()
    script = re.search(r"```python\n(.+?)```", guide, flags=re.S)
    shown = re.search(r"```console\n\$ hotloop audit (.+?)\n(.+?)```", guide, flags=re.S)
    assert script is not None
    assert shown is not None
    (tmp_path / "train.py").write_text(script[1])
    done = hotloop("audit", *shown[1].split(), folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, shown[2])
