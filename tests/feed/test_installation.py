"""``hotloop.feed`` needs torch and numpy: ``pip install --no-deps hotloop`` is enough in a training image."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.running import SRC

#: Only what torch and numpy bring may be imported besides the standard library and hotloop.
SCRIPT = """
import importlib.abc, sys
import torch, numpy

before = set(sys.modules)

BLOCKED = {"rich", "psutil", "pynvml", "libcst", "yaml", "ray", "jinja2", "h5py", "sklearn", "shtab"}

class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
from hotloop import feed
import importlib, pkgutil, types
for module in pkgutil.walk_packages(feed.__path__, "hotloop.feed."):
    importlib.import_module(module.name)
for name in feed.__all__:
    assert not isinstance(getattr(feed, name), types.ModuleType), f"a module hides {name}"
    assert (getattr(feed, name).__doc__ or "").strip(), f"{name} has no docstring"
rooms = {name.split(".")[1] for name in sys.modules if name.startswith("hotloop.")}
assert rooms <= {"feed", "cgroups", "errors", "units", "fast", "_fast", "__version__"}, rooms

class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 12
    def __getitem__(self, index):
        return torch.full((4,), index * index), index

data = feed.cached(Squares(), "1MiB")
for workers in (0, 1):
    loader = feed.Loader(data, batch_size=4, num_workers=workers)
    print([int(squares[-1, 0]) for squares, _ in loader])
print(data.stats().num_items, feed.bake(Squares(), sys.argv[1], num_workers=0)[5][0].tolist())
found = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(found & BLOCKED))
"""


def test_the_library_runs_where_only_torch_and_numpy_are_installed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "baked")]
    done = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(SRC)}, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = ["[9, 49, 121]", "[9, 49, 121]", "12 [25, 25, 25, 25]", "[]"]
    assert done.stdout.splitlines() == lines
