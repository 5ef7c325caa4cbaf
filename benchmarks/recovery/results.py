"""One JSON file for the whole table: a row is on disk when it is measured, and a later run goes on."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))

from hotloop.record.publish import write_text_atomic  # noqa: E402


class Results:
    """Rows by section ("cases", "grid", "peers") and key. Without a path nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        machine = {"cores": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()[0]}
        self.sections: dict[str, dict[str, Any]] = {"machine": machine}
        if path is not None and path.exists():  # the machine of the rows that are there, where it is known
            self.sections = json.loads(path.read_text())

    def put(self, section: str, key: str, row: dict[str, Any]) -> None:
        """On disk when this returns."""
        self.sections.setdefault(section, {})[key] = {**row, "version": version()}
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_text_atomic(self._path, json.dumps(self.sections, indent=1) + "\n")

    def has(self, section: str, key: str, *, any_version: bool) -> bool:
        """Whether there is a row of this version, or of any, without a failure."""
        row = self.sections.get(section, {}).get(key)
        known = row is not None and not row["failures"]
        return known and (any_version or row["version"] == version())


def version() -> str:
    """What of hotloop was measured: git's name for the tree of ``src``, marked where it was changed since."""
    tree = _git("rev-parse", "--short", "HEAD:src")
    return tree + "+" * bool(_git("status", "--porcelain", "--untracked-files=no", "--", "src"))


def _git(*words: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    return done.stdout.strip()
