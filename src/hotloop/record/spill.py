"""What of a long recording lies in files without a name: memory holds what is being read of it."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hotloop.record.recording import ROW_DTYPE

#: Rows of one process up to here simply lie in memory (24 MiB); the measurement takes as many at once.
IN_MEMORY: Final = 1 << 20
#: Smaller arrays than this (bytes) are not worth a file.
_WORTH_A_FILE: Final = 1 << 18


def empty_rows(num_rows: int, folder: Path) -> npt.NDArray[Any]:
    """Room for so many rows, in a file where there are many."""
    return np.empty(num_rows, ROW_DTYPE) if num_rows <= IN_MEMORY else room((num_rows,), ROW_DTYPE, folder)


def room(shape: tuple[int, ...], dtype: npt.DTypeLike, folder: Path | None) -> npt.NDArray[Any]:
    """An array in a file, column by column: beside the recording, else in the temporary folder, else in
    memory.
    """
    num_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    for place in dict.fromkeys((folder, None)) if num_bytes >= _WORTH_A_FILE else ():
        try:
            with tempfile.TemporaryFile(dir=place) as file:
                # Reserved before it is mapped: a full disk is an error here and would be SIGBUS later.
                os.posix_fallocate(file.fileno(), 0, num_bytes)
                return np.asarray(np.memmap(file, dtype, "r+", shape=shape, order="F"))
        except (OSError, AttributeError):  # read-only, full; a platform without posix_fallocate
            continue
    return np.empty(shape, dtype, order="F")


def end_to_end(parts: list[npt.NDArray[Any]], folder: Path | None) -> npt.NDArray[Any]:
    """One array of all, in a file where it is large; ``parts`` is emptied, each given back when it is in."""
    whole = room((sum(map(len, parts)), *parts[0].shape[1:]), np.result_type(*parts), folder)
    at = len(whole)
    while parts:
        last = parts.pop()
        whole[at - len(last) : at] = last
        at -= len(last)
        release(last)
        release(whole)
    return whole


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
