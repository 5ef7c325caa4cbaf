"""What a tuning is a tuning of: trials of another program or machine say nothing about this one."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, Final

#: Files named by a command that are larger are data.
MOST_BYTES: Final = 1 << 20


def subject(command: Sequence[str]) -> dict[str, Any]:
    """Folder, host, torch, and digests of the small files named; the journal holds what the run read."""
    torch = ""
    with suppress(metadata.PackageNotFoundError):
        torch = metadata.version("torch")
    files = {str(path): digest(path) for path in sorted(set(_files(command)))}
    return {"folder": str(Path.cwd()), "host": platform.node(), "torch": torch, "files": files}


def _files(command: Sequence[str]) -> Iterator[Path]:
    for word in command[1:]:
        path = Path(word.partition("=")[2] or word)
        with suppress(OSError, ValueError):
            if path.is_file() and path.stat().st_size < MOST_BYTES:
                yield path.resolve()


def digest(path: Path) -> str:
    """What a file holds, in few characters; "" where it is gone."""
    if not path.is_file():
        return ""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
