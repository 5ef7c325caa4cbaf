"""What the kernel knows about another process and its files; answers «no» where it cannot be asked."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import Final

import psutil

_KEEP_SIZE_PUNCH_HOLE: Final = 0x01 | 0x02
#: Space is given back in pieces of this size, well behind the part that its writer has mapped.
_HOLE: Final = 1 << 20


def is_alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not: it writes no more)."""
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return True


def parent_of(pid: int) -> int:
    """The parent's pid, 0 when the process is gone."""
    try:
        return psutil.Process(pid).ppid()
    except (psutil.Error, ValueError):
        return 0


def punch(path: Path, start: int, end: int) -> int:
    """Give back the space of a file's bytes from ``start`` up to ``end``; returns how far that went.

    The file keeps its size and its writer's offsets. Where the file system cannot do it the space stays
    taken.
    """
    upto = end - end % _HOLE
    if upto <= start or sys.platform != "linux":
        return start
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return start
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
        libc.fallocate(handle, _KEEP_SIZE_PUNCH_HOLE, start, upto - start)
    finally:
        os.close(handle)
    return upto
