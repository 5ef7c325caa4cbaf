"""Which files an audit reads, and their text; a file that cannot be read is told apart, never fatal."""

from __future__ import annotations

import ast
import io
import os
import tokenize
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hotloop.errors import UsageError

#: Generated tables, not code that a person wrote; parsing them takes hundreds of bytes per byte.
MAX_BYTES: Final = 2 * 2**20
#: Below the folder that was named, these hold other people's code, or code that trains nothing.
_SKIPPED_FOLDERS: Final = frozenset(
    [
        "__pycache__",
        "build",
        "dist",
        "env",
        "node_modules",
        "site-packages",
        "tests",
        "venv",
        "virtualenv",
        "third_party",
        "thirdparty",
    ]
)
_NOT_READ: Final = "cannot be read: "


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """A file that was not audited, and why."""

    file: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Source:
    """One parsed file: ``name`` as it is shown, ``dotted`` as it would be imported from the folder named."""

    path: Path
    name: str
    dotted: str
    text: str
    tree: ast.Module


def find(paths: Sequence[Path]) -> Iterator[tuple[Path, str, str]]:
    """Every Python file under ``paths`` once: its path, shown name and dotted name. A missing path is a
    UsageError.
    """
    seen: set[Path] = set()
    for root in paths:
        if not root.exists():
            raise UsageError(f"{root} does not exist", hint="give a Python file or a folder of them")
        found = _walk(root) if root.is_dir() else iter([root])
        for path in found:
            real = path.resolve()
            if real not in seen:
                seen.add(real)
                yield path, shown(path), _dotted(path, root)


def shown(path: Path) -> str:
    """The path as it is printed: relative to the working folder where it lies below it."""
    try:
        name = path.resolve().relative_to(Path.cwd()).as_posix()
    except (ValueError, OSError):
        name = path.as_posix()
    return os.fsencode(name).decode("utf-8", "backslashreplace")  # some names are not text


def read(path: Path, name: str, dotted: str) -> Source | Skipped:
    """Parse one file."""
    try:
        if path.stat().st_size > MAX_BYTES:
            return Skipped(file=name, reason=f"larger than {MAX_BYTES // 2**20} MiB")
        if not path.is_file():
            return Skipped(file=name, reason="not a regular file")
        data = path.read_bytes()
    except OSError as error:
        return Skipped(file=name, reason=_NOT_READ + (error.strerror or str(error)))
    if b"\0" in data:
        return Skipped(file=name, reason="binary, not Python source")
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = io.TextIOWrapper(io.BytesIO(data), encoding=encoding, newline=None).read()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in strings are not our business
            tree = ast.parse(text)
    except SyntaxError as error:
        return Skipped(file=name, reason=f"not Python 3 source (line {error.lineno or 1}: {error.msg})")
    except (UnicodeDecodeError, LookupError):
        return Skipped(file=name, reason="not text in the encoding it declares")
    except (RecursionError, MemoryError, ValueError):
        return Skipped(file=name, reason="nested too deeply to be parsed")
    return Source(path=path, name=name, dotted=dotted, text=text, tree=tree)


def _walk(root: Path) -> Iterator[Path]:
    for folder, names, files in os.walk(root):
        names[:] = sorted(name for name in names if not name.startswith(".") and name not in _SKIPPED_FOLDERS)
        for file in sorted(files):
            if file.endswith(".py"):
                yield Path(folder, file)


def _dotted(path: Path, root: Path) -> str:
    try:
        relative = path.relative_to(root) if root.is_dir() else Path(path.name)
    except ValueError:
        relative = Path(path.name)
    parts = list(relative.with_suffix("").parts)
    if parts and parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)
