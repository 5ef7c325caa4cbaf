"""What a run would have written or deleted, read from the upper folders of its overlays."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

Kind = Literal["written", "deleted"]


def changes(upper: Path, folder: Path, *, opaque: bool = False) -> Iterator[tuple[Kind, Path]]:
    """What ``upper`` holds over ``folder``, unsorted; compiled Python files are left out.

    ``opaque``: what ``folder`` holds does not shine through: it was deleted, and another made in its place.
    """
    entries = _entries(upper)
    opaque = opaque or _is_opaque(upper)
    if opaque:
        names = {entry.name for entry in entries}
        yield from (("deleted", folder / entry.name) for entry in _entries(folder) if entry.name not in names)
    for entry in entries:
        path, target = Path(entry.path), folder / entry.name
        if entry.is_dir(follow_symlinks=False):
            if entry.name != "__pycache__":
                inside = list(changes(path, target, opaque=opaque))
                yield from inside or ([] if target.is_dir() else [("written", target)])
            continue
        mode = entry.stat(follow_symlinks=False).st_mode
        if stat.S_ISCHR(mode):
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
    """What is in a folder; a script may have left it without permission, for its owner too."""
    for attempt in range(2):
        try:
            with os.scandir(folder) as found:
                return list(found)
        except PermissionError:
            if attempt:
                break
            try:
                folder.chmod(stat.S_IRWXU)
            except OSError:
                break
        except OSError:
            break
    return []


def _is_opaque(upper: Path) -> bool:
    for name in ("trusted.overlay.opaque", "user.overlay.opaque"):
        try:
            if os.getxattr(upper, name, follow_symlinks=False) == b"y":
                return True
        except OSError:
            continue
    return False
