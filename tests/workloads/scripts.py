"""The modules of a workload, as its script imports them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType


@contextmanager
def imported(folder: Path, *names: str) -> Iterator[dict[str, ModuleType]]:
    """The named modules in ``folder``, forgotten afterwards: every workload calls its own alike."""
    sys.path.insert(0, str(folder))
    try:
        yield {name: importlib.import_module(name) for name in names}
    finally:
        sys.path.remove(str(folder))
        for name in names:
            sys.modules.pop(name, None)
