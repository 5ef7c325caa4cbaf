"""Commands that shut hotloop out: interpreters told to ignore the environment, and programs that drop it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_PYTHON: Final = re.compile(r"^(python|pypy)[0-9.]*$")


def isolation_warnings(command: Sequence[str]) -> tuple[str, ...]:
    """What of this command hotloop cannot look inside, in words; empty for an ordinary one."""
    found: list[str] = []
    for at, word in enumerate(command):
        if _PYTHON.match(Path(word).name):
            found += _of_interpreter(word, command[at + 1 :])
            break
    if command and Path(command[0]).name in ("sudo", "doas"):
        found.append(f"could not look inside: {command[0]} does not pass the environment on (try sudo -E)")
    if (
        len(command) > 1
        and Path(command[0]).name == "env"
        and command[1] in ("-i", "-", "--ignore-environment")
    ):
        found.append("could not look inside: env -i does not pass the environment on")
    return (*found, *_of_shebang(command[0])) if command else tuple(found)


def _of_interpreter(name: str, options: Sequence[str]) -> list[str]:
    flag = _flag_that_shuts_out(options)
    if not flag:
        return []
    return [
        f"could not look inside: {name} {flag} ignores the environment that hotloop uses (run without {flag})"
    ]


def _flag_that_shuts_out(options: Sequence[str]) -> str:
    """Walk an interpreter's options up to the script, -c or -m, as the interpreter does."""
    words = iter(options)
    for word in words:
        if word == "--check-hash-based-pycs":
            next(words, "")
        if word == "-" or not word.startswith("-"):
            return ""
        if word.startswith("--"):
            continue
        for at, letter in enumerate(word[1:], 1):
            if letter in "IES":
                return f"-{letter}"
            if letter in "cm":
                return ""
            if letter in "WX":  # the rest of the word is the value, or the next word
                if at == len(word) - 1:
                    next(words, "")
                break
    return ""


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
