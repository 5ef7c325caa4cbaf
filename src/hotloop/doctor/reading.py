"""How fast a folder's files can be read at random places, past the page cache where that is allowed."""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

#: One read: about an image, and a multiple of every block size.
READ_BYTES = 128 << 10
_MOST_FILES = 2000


@dataclass(frozen=True, kw_only=True)
class ReadRate:
    """Reads of ``READ_BYTES`` one after another, as one worker does them. ``direct``: past the cache."""

    reads_per_s: float
    bytes_per_s: float
    num_reads: int
    direct: bool


def files_in(folder: Path) -> list[Path]:
    """Some of the files below a folder that hold at least one read."""
    found: list[Path] = []
    for root, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(root, name)
            with contextlib.suppress(OSError):
                if path.is_file() and not path.is_symlink() and path.stat().st_size >= READ_BYTES:
                    found.append(path)
            if len(found) >= _MOST_FILES:
                return found
    return found


def random_reads(files: Sequence[Path], *, seconds: float = 1.5) -> ReadRate | None:
    """Rate of single reads at random places of random files, None where none of them can be read."""
    if not files:
        return None
    chosen = random.Random(0)
    buffer = mmap.mmap(-1, READ_BYTES)  # page-aligned, as direct reads ask
    count, spent, direct = 0, 0.0, True
    until = time.perf_counter() + seconds
    while time.perf_counter() < until and count < 20_000:
        path = chosen.choice(files)
        try:
            blocks = path.stat().st_size // READ_BYTES
            start = time.perf_counter()
            direct = _read(path, chosen.randrange(blocks) * READ_BYTES, buffer) and direct
        except (OSError, ValueError):
            files = [file for file in files if file != path]
            if not files:
                break
            continue
        spent += time.perf_counter() - start
        count += 1
    if not count:
        return None
    rate = count / spent
    return ReadRate(reads_per_s=rate, bytes_per_s=rate * READ_BYTES, num_reads=count, direct=direct)


def _read(path: Path, offset: int, buffer: mmap.mmap) -> bool:
    """Read into the buffer; whether it was past the page cache."""
    flags = os.O_RDONLY | os.O_CLOEXEC
    with contextlib.suppress(OSError):  # filesystems in memory and some on the network refuse
        descriptor = os.open(path, flags | getattr(os, "O_DIRECT", 0))
        try:
            os.preadv(descriptor, [buffer], offset)
            return hasattr(os, "O_DIRECT")
        finally:
            os.close(descriptor)
    descriptor = os.open(path, flags)
    try:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, offset, READ_BYTES, os.POSIX_FADV_DONTNEED)
        os.preadv(descriptor, [buffer], offset)
    finally:
        os.close(descriptor)
    return False
