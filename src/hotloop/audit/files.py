"""Which files an audit reads, and their text; a file that cannot be read is reported, never fatal."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hotloop import foreign
from hotloop.errors import UsageError
from hotloop.source.text import Text, decoded

#: Generated tables, not code that a person wrote; parsing them takes hundreds of bytes per byte.
MAX_BYTES: Final = 2 * 2**20
#: Below the folder that was named, these hold other people's code, or code that trains nothing.
_SKIPPED_FOLDERS: Final = frozenset([
    "__pycache__", "build", "dist", "env", "node_modules", "site-packages", "tests", "venv", "virtualenv",
    "third_party", "thirdparty",
])  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """A file that was not audited, and why."""

    file: str
    reason: str


def find(paths: Sequence[Path]) -> Iterator[tuple[Path, str, str]]:
    """Every Python file under ``paths`` once: its path, shown name and dotted name. A missing path is a
    UsageError.
    """
    seen: set[Path] = set()
    for root in paths:
        if not root.exists():
            raise UsageError(f"{root} does not exist", hint="give a Python file or a folder of them")
        for path in _walk(root) if root.is_dir() else iter([root]):
            real = Path(os.path.realpath(path))
            if real not in seen:
                seen.add(real)
                yield path, shown(path), _dotted(path, root)


def shown(path: Path) -> str:
    """The path as it is printed: relative to the working folder where it lies below it."""
    try:
        name = Path(os.path.realpath(path)).relative_to(Path.cwd()).as_posix()
    except (ValueError, OSError):
        name = path.as_posix()
    return os.fsencode(name).decode("utf-8", "backslashreplace")  # some names are not text


def read(path: Path, name: str) -> Text | Skipped:
    """The text of one file."""
    try:
        if path.stat().st_size > MAX_BYTES:
            return Skipped(file=name, reason=f"larger than {MAX_BYTES // 2**20} MiB")
        if not path.is_file():
            return Skipped(file=name, reason="not a regular file")
        data = path.read_bytes()
    except OSError as error:
        return Skipped(file=name, reason=f"cannot be read: {error.strerror or error}")
    if b"\0" in data:
        return Skipped(file=name, reason="binary, not Python source")
    try:
        return decoded(path, data)
    except ValueError:
        return Skipped(file=name, reason="not text in the encoding it declares")


def _walk(root: Path) -> Iterator[Path]:
    for folder, names, files in foreign.walk(root):
        names[:] = sorted(name for name in names if not name.startswith(".") and name not in _SKIPPED_FOLDERS)
        yield from (Path(folder, file) for file in sorted(files) if file.endswith(".py"))


def _dotted(path: Path, root: Path) -> str:
    relative = path.relative_to(root) if root.is_dir() else Path(path.name)
    parts = list(relative.with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
