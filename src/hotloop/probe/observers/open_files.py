"""Files and databases that a dataset holds open: processes must not share them.

All workers would move the one position of a file; what reads HDF5, LMDB and SQLite keeps state beside it, and
says itself that it is not to be used in a process that was forked since.
"""

from __future__ import annotations

import contextlib
import io
import sys
from types import ModuleType
from typing import Any, Final

from hotloop.state.stored import attributes

#: How deep, and among how many values at each depth, open files are looked for.
_DEPTH: Final = 4
_MOST: Final = 1000
#: Classes by the first part of their module's name, or by the module that has them where C says "builtins".
_HANDLES: Final = {
    "h5py": ("File", "Group", "Dataset"),
    "lmdb": ("Environment", "Transaction", "Cursor"),
    "sqlite3": ("Connection", "Cursor"),
    "netCDF4": ("Dataset", "Variable"),
}


def open_file(dataset: Any) -> str:
    """The name of a file that a dataset, or what it holds, reads from; "" for none."""
    values = [dataset]
    for _ in range(_DEPTH):
        for file in values:
            with contextlib.suppress(OSError, ValueError):  # closed, or in memory
                if isinstance(file, io.IOBase) and file.readable() and file.fileno() > 2:
                    return str(getattr(file, "name", file))
                if package := _package(file):
                    return _name(file, package)
        values = [inner for value in values for inner in _held(value)][:_MOST]
    return ""


def _package(value: Any) -> str:
    """The package whose open handle it is, "" for anything else."""
    kind = type(value)
    package = str(kind.__module__).partition(".")[0]
    if package == "builtins":
        found = (one for one in _HANDLES if vars(sys.modules.get(one, io)).get(kind.__name__) is kind)
        package = next(found, "")
    handle = kind.__name__ in _HANDLES.get(package, ())
    return package if handle and (package != "h5py" or bool(value)) else ""  # not closed


def _name(handle: Any, package: str) -> str:
    for holder in (handle, getattr(handle, "file", None)):
        name = getattr(holder, "filename", None)
        if isinstance(name, str):
            return name
    return f"{package}.{type(handle).__name__}"


def _held(value: Any) -> list[Any]:
    if isinstance(value, list):
        return list.__getitem__(value, slice(_MOST))  # not what a class of the script's made of it
    if isinstance(value, tuple):
        return list(tuple.__getitem__(value, slice(_MOST)))
    held = value if isinstance(value, dict) else attributes(value)
    return list(dict.values(held)) if held and not isinstance(value, ModuleType) else []
