"""What a run would have written or deleted, read from the upper folders of its overlays."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

Kind = Literal["written", "deleted"]


def changes(upper: Path, folder: Path) -> Iterator[tuple[Kind, Path]]:
    """What ``upper`` holds over ``folder``, unsorted; compiled Python files are left out."""
    for entry in _entries(upper):
        path, target = Path(entry.path), folder / entry.name
        mode = entry.stat(follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode) and entry.name != "__pycache__":
            inside = list(changes(path, target))
            if _is_opaque(path):  # it was deleted, and another made in its place
                names = {one.name for one in _entries(path)}
                lost = (one.name for one in _entries(target) if one.name not in names)
                inside += [("deleted", target / name) for name in lost]
            yield from inside or ([] if target.is_dir() else [("written", target)])
        elif stat.S_ISCHR(mode):
            yield "deleted", target
        elif stat.S_ISREG(mode) or stat.S_ISLNK(mode):  # sockets and pipes are nobody's files
            yield "written", target


def is_temporary(path: Path) -> bool:
    """Whether it is, or lies in, a new entry of a folder for temporary files."""
    for folder in {Path("/tmp"), Path("/var/tmp"), Path(tempfile.gettempdir()).resolve()}:
        if path.is_relative_to(folder) and path != folder:
            return not os.path.lexists(folder / path.relative_to(folder).parts[0])
    return False


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """What is in a folder; nothing where a script left it without permission."""
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


def _is_opaque(upper: Path) -> bool:
    for name in ("trusted.overlay.opaque", "user.overlay.opaque"):
        with suppress(OSError):
            if os.getxattr(upper, name, follow_symlinks=False) == b"y":
                return True
    return False
