"""Files and databases that a dataset holds open: processes must not share them.

All workers would move the one position of a file; what reads HDF5, LMDB and SQLite keeps state beside it, and
says itself that it is not to be used in a process that was forked since.
"""

from __future__ import annotations

import io
import sys
from typing import Any, Final

from hotloop.state.snapshot import reached

#: Classes by the first part of their module's name, or by the module that has them where C says "builtins".
_HANDLES: Final = {
    "h5py": ("File", "Group", "Dataset"),
    "lmdb": ("Environment", "Transaction", "Cursor"),
    "sqlite3": ("Connection", "Cursor"),
    "netCDF4": ("Dataset", "Variable"),
}


def open_file(dataset: Any) -> str:
    """The name of a file that a dataset, or what it holds, reads from; "" for none."""
    return next(map(_name, reached(dataset, _is_open)), "")


def _is_open(value: Any) -> bool:
    if type(value).__module__ != "_io":
        return bool(_package(value))
    try:
        return bool(value.readable() and value.fileno() > 2)
    except (OSError, ValueError):  # closed, or in memory
        return False


def _package(value: Any) -> str:
    """The package whose open handle it is, "" for anything else."""
    kind = type(value)
    package = str(kind.__module__).partition(".")[0]
    if package == "builtins":
        found = (one for one in _HANDLES if vars(sys.modules.get(one, io)).get(kind.__name__) is kind)
        package = next(found, "")
    handle = kind.__name__ in _HANDLES.get(package, ())
    return package if handle and (package != "h5py" or bool(value)) else ""  # not closed


def _name(handle: Any) -> str:
    if type(handle).__module__ == "_io":
        return str(getattr(handle, "name", handle))
    name = getattr(getattr(handle, "file", handle), "filename", None)
    return name if isinstance(name, str) else f"{_package(handle)}.{type(handle).__name__}"
