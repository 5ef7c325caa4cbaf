"""Temporary folders that go with the process that made them, or with the next one where it was killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import IO, Final

_NAME: Final = "hotloop-throwaway-"
_NEW: Final = ".hotloop-new-"


def places() -> dict[Path, int]:
    """Where one can be made, with the bytes that are free there: the most first, memory last."""
    shared = Path("/dev/shm")
    found = {}
    for path in dict.fromkeys(Path(name).resolve() for name in ("/var/tmp", tempfile.gettempdir(), shared)):
        with contextlib.suppress(OSError):
            if os.access(path, os.W_OK):
                found[path] = shutil.disk_usage(path).free
    return dict(sorted(found.items(), key=lambda item: (item[0] == shared, -item[1])))


def is_ours(name: str) -> bool:
    """Whether a folder of this name is a scratch folder: it may be gone at any time."""
    return name.startswith((_NAME, _NEW))


def make(folder: Path) -> tuple[Path, IO[str]]:
    """A new folder and its lock. It gets its name when it is locked: never seen by a sweep without.

    Raises OSError.
    """
    new = Path(tempfile.mkdtemp(prefix=_NEW, dir=folder))
    lock = (new / "lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return new.rename(new.with_name(_NAME + new.name.rpartition("-")[2])), lock


def sweep(folder: Path) -> None:
    """Remove what a killed hotloop left: nobody holds its lock. Pids tell nothing across containers.

    Anybody may put anything in a shared folder: only real folders of this user with a lock file count.
    """
    for path in folder.glob(f"{_NAME}*"):
        with contextlib.suppress(OSError):
            status = path.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
                continue
            handle = os.open(path / "lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                if stat.S_ISREG(os.fstat(handle).st_mode):
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove(path)
            finally:
                os.close(handle)


def remove(scratch: Path) -> None:
    """All of it, folders without permission too: the kernel leaves some, and so may a script."""
    shutil.rmtree(scratch, ignore_errors=True)
    if not scratch.exists():
        return
    for folder, names, _ in os.walk(scratch):
        for path in (Path(folder, name) for name in names):
            with contextlib.suppress(OSError):
                if stat.S_ISDIR(path.lstat().st_mode):
                    path.chmod(stat.S_IRWXU)  # before the walk enters it
    shutil.rmtree(scratch, ignore_errors=True)
