"""What a tuning is a tuning of: trials of another program or machine say nothing about this one."""

from __future__ import annotations

import hashlib
import platform
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import metadata
from modulefinder import ModuleFinder
from pathlib import Path
from typing import Any, Final

#: Files named by a command that are larger are data.
MOST_BYTES: Final = 1 << 20


def subject(command: Sequence[str]) -> dict[str, Any]:
    """Folder, host, torch, and digests of the script, what it imports from its folder, small files named."""
    torch = ""
    with suppress(metadata.PackageNotFoundError):
        torch = metadata.version("torch")
    files = {str(path): digest(path) for path in sorted(set(_files(command)))}
    return {"folder": str(Path.cwd()), "host": platform.node(), "torch": torch, "files": files}


def _files(command: Sequence[str]) -> Iterator[Path]:
    for number, word in enumerate(command):
        named = [Path(word.partition("=")[2] or word)]
        if number and command[number - 1] == "-m":
            module = Path(word.replace(".", "/"))
            named = [module.with_suffix(".py"), module / "__main__.py"]
        for path in named:
            with suppress(OSError, ValueError):
                if number and path.is_file() and path.stat().st_size < MOST_BYTES:
                    yield path.resolve()
                    if path.suffix == ".py":
                        yield from _imported(path.resolve())


def _imported(script: Path) -> Iterator[Path]:
    """Modules that a script imports from its folder or the working folder, and those they import."""
    finder = ModuleFinder(path=[str(script.parent), str(Path.cwd())])
    # A script that does not compile: its first trial tells.
    with suppress(Exception), warnings.catch_warnings(action="ignore"):
        finder.run_script(str(script))
    files = [getattr(module, "__file__", None) for module in finder.modules.values()]
    yield from (Path(name).resolve() for name in files if name)


def digest(path: Path) -> str:
    """What a file holds, in few characters; "" where it is gone."""
    if not path.is_file():
        return ""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
