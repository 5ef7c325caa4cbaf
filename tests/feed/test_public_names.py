"""``hotloop.feed`` stands alone: what it exports is there, and nothing else of hotloop comes with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

IMPORT_ALL = """
import importlib, pkgutil, sys, types
import hotloop.feed as feed
for module in pkgutil.walk_packages(feed.__path__, "hotloop.feed."):
    importlib.import_module(module.name)
shadowed = [name for name in feed.__all__ if isinstance(getattr(feed, name), types.ModuleType)]
assert not shadowed, f"modules hide the functions of the same name: {shadowed}"
undocumented = [name for name in feed.__all__ if not (getattr(feed, name).__doc__ or "").strip()]
assert not undocumented, undocumented
rooms = {name.split(".")[1] for name in sys.modules if name.startswith("hotloop.")}
assert rooms <= {"feed", "errors", "units", "fast", "_fast", "__version__"}, rooms
heavy = {"rich", "lmdb", "ray", "psutil", "yaml", "sklearn", "h5py"} & set(sys.modules)
assert not heavy, heavy
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    path = str(ROOT / "src")
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {path!r})\n{code}"],
        capture_output=True,
        text=True,
    )


def test_everything_public_is_there_documented_and_alone() -> None:
    done = run(IMPORT_ALL)
    assert done.returncode == 0, done.stderr


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    done = run("import hotloop.feed\nassert not hasattr(hotloop.feed, 'nothing')")
    assert done.returncode == 0, done.stderr
