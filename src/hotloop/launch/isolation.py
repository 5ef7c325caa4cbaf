"""Commands that shut hotloop out: interpreters told to ignore the environment, and programs that drop it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_PYTHON: Final = re.compile(r"^(python|pypy)[0-9.]*$")
#: Options that keep PYTHONPATH or sitecustomize from being used.
_SHUTS_OUT: Final = re.compile(r"^-[a-zA-Z]*?([IES])")
_TAKES_VALUE: Final = frozenset({"-X", "-W", "--check-hash-based-pycs"})


def isolation_warnings(command: Sequence[str]) -> tuple[str, ...]:
    """What of this command hotloop cannot look inside, in words; empty for an ordinary one."""
    found: list[str] = []
    for at, word in enumerate(command):
        if _PYTHON.match(Path(word).name):
            found += _of_interpreter(word, command[at + 1 :])
            break
    if command and Path(command[0]).name in ("sudo", "doas"):
        found.append(f"could not look inside: {command[0]} does not pass the environment on (try sudo -E)")
    if len(command) > 1 and Path(command[0]).name == "env" and command[1] in ("-i", "-", "--ignore-environment"):
        found.append("could not look inside: env -i does not pass the environment on")
    return (*found, *_of_shebang(command[0])) if command else tuple(found)


def _of_interpreter(name: str, options: Sequence[str]) -> list[str]:
    skip = False
    for option in options:
        if skip:
            skip = False
            continue
        if not option.startswith("-") or option in ("-", "-c", "-m", "--"):
            break
        skip = option in _TAKES_VALUE
        match = None if option.startswith("--") or option[1] in "XW" else _SHUTS_OUT.match(option)
        if match:
            flag = match[1]
            return [f"could not look inside: {name} -{flag} ignores the environment hotloop uses (run without -{flag})"]
        if re.match(r"^-[a-zA-Z]*[cm]$", option):
            break
    return []


def _of_shebang(program: str) -> list[str]:
    path = shutil.which(program)
    if path is None:
        return []
    try:
        with Path(path).open("rb") as file:
            line = file.readline(512)
    except OSError:
        return []
    if not line.startswith(b"#!"):
        return []
    words = line[2:].decode("utf-8", "replace").split()
    for at, word in enumerate(words):
        if _PYTHON.match(Path(word).name):
            return _of_interpreter(f"{word} (first line of {path})", words[at + 1 :])
    return []
