"""Files that a dataset holds open: workers would share their one position."""

from __future__ import annotations

import contextlib
import io
from types import ModuleType
from typing import Any, Final

#: How deep, and among how many values at each depth, open files are looked for.
_DEPTH: Final = 4
_MOST: Final = 1000


def open_file(dataset: Any) -> str:
    """The name of a file that a dataset, or what it holds, reads from; "" for none."""
    values = [dataset]
    for _ in range(_DEPTH):
        for file in values:
            with contextlib.suppress(OSError, ValueError):  # closed, or in memory
                if isinstance(file, io.IOBase) and file.readable() and file.fileno() > 2:
                    return str(getattr(file, "name", file))
        values = [inner for value in values for inner in _held(value)][:_MOST]
    return ""


def _held(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return list(value[:_MOST])
    held = value if isinstance(value, dict) else getattr(value, "__dict__", None)
    return list(held.values()) if isinstance(held, dict) and not isinstance(value, ModuleType) else []
