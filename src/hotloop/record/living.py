"""What the kernel knows about another process and its files; answers «no» where it cannot be asked."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import Final

_KEEP_SIZE_PUNCH_HOLE: Final = 0x01 | 0x02
#: Space is given back in pieces of this size, well behind the part that its writer has mapped.
_HOLE: Final = 1 << 20


def is_alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not: it writes no more)."""
    stat = _stat(pid)
    if stat is not None:
        return stat[0] not in ("Z", "X")
    if sys.platform == "linux":
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def parent_of(pid: int) -> int:
    """The parent's pid, 0 when the process is gone."""
    stat = _stat(pid)
    return int(stat[1]) if stat is not None else 0


def _stat(pid: int) -> list[str] | None:
    """The fields of ``/proc/PID/stat`` behind the name: state, ppid, ..."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


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
