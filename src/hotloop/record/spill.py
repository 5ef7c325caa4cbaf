"""The rows of a long recording lie in files without a name: memory holds what is being read of them."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hotloop.record.rows import ROW_FIELDS

_ROW: Final = np.dtype(ROW_FIELDS)

#: Rows of one process up to here simply lie in memory (24 MiB); the measurement takes as many at once.
IN_MEMORY: Final = 1 << 20


def empty_rows(num_rows: int, folder: Path | None) -> npt.NDArray[Any]:
    """Room for so many rows: many lie in a file beside the recording, or where other temporary files are."""
    num_bytes = num_rows * _ROW.itemsize
    for place in (folder, None) if num_rows > IN_MEMORY else ():
        try:
            with tempfile.TemporaryFile(dir=place) as file:
                # Reserved before it is mapped: a full disk is an error here and would be SIGBUS later.
                os.posix_fallocate(file.fileno(), 0, num_bytes)
                return np.asarray(np.memmap(file, _ROW, "r+", shape=(num_rows,)))
        except OSError:  # read-only, full
            continue
    return np.empty(num_rows, _ROW)


def in_turn(rows: npt.NDArray[Any], at_once: int = IN_MEMORY // 8) -> Iterator[npt.NDArray[Any]]:
    """The rows in runs, each given back when the next one is asked for."""
    for at in range(0, len(rows), at_once):
        yield rows[at : at + at_once]
        release(rows)


def release(rows: npt.NDArray[Any]) -> None:
    """Give back the memory that reading these rows took, where they lie in a file; they stay readable."""
    base: Any = rows
    while base is not None and not isinstance(base, mmap.mmap):
        base = getattr(base, "base", None)
    if base is not None:
        base.madvise(mmap.MADV_DONTNEED)
