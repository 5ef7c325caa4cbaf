"""Temporary folders that go with the process that made them, or with the next one where it was killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

_NAME: Final = "hotloop-throwaway-"


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
    return name.startswith(_NAME)


def make(folder: Path) -> tuple[Path, int]:
    """A new folder and the handle that locks it. Raises OSError, also where a sweep came between the two."""
    new = tempfile.mkdtemp(prefix=_NAME, dir=folder)
    lock = os.open(new, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return Path(new).resolve(strict=True), lock


def sweep(folder: Path) -> None:
    """Remove what a killed hotloop left: nobody holds its lock. Pids tell nothing across containers.

    Anybody may put anything in a shared folder: only real folders of this user count.
    """
    for path in folder.glob(f"{_NAME}*"):
        with contextlib.suppress(OSError):
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(handle).st_uid == os.getuid():
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove(path)
            finally:
                os.close(handle)


def remove(scratch: Path) -> None:
    """All of it, folders without permission too: the kernel leaves some, and so may a script."""
    for words in (("rm", "-rf"), ("chmod", "-R", "u+rwx"), ("rm", "-rf")):  # however deep the folders are
        if scratch.exists():
            subprocess.run([*words, "--", str(scratch)], stderr=subprocess.DEVNULL, check=False)
