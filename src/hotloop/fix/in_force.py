"""A patch in force without a write: the command runs the patched files, the user's stay as they are.

A unified diff is applied to copies that lie in the run folder, as ``files`` (a path on each line) and
``0.py``, ``1.py``, ...; processes of the command find them there (``bootstrap/inject/hotloop_patch.py``).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hotloop.errors import UsageError

#: In a run folder; the patch itself is kept beside the copies.
FOLDER: Final = "patched"
NAME: Final = "patch.diff"

_HUNK: Final = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_OTHER: Final = (
    b"new file", b"deleted file", b"rename ", b"copy ", b"old mode", b"similarity", b"GIT binary",
    b"Binary files",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class InForce:
    """A patch that applies. ``files`` are the patched texts by real path, ``diff`` is the patch itself."""

    diff: bytes
    files: dict[Path, bytes]

    def put(self, folder: Path) -> dict[str, str]:
        """Lay it into a run folder; the environment that puts it in force. Raises OSError."""
        own = folder / FOLDER
        own.mkdir()
        (own / NAME).write_bytes(self.diff)
        (own / "files").write_bytes(b"\n".join(map(os.fsencode, self.files)))
        for number, text in enumerate(self.files.values()):
            (own / f"{number}.py").write_bytes(text)
        return {"HOTLOOP_PATCH": str(own.absolute())}

    def take_back(self, folder: Path) -> None:
        """Out of the run folder: the command did not start."""
        shutil.rmtree(folder / FOLDER, ignore_errors=True)


@dataclass(kw_only=True)
class _Hunk:
    start: int  # index of its first line
    num_before: int
    num_after: int
    before: list[bytes] = field(default_factory=list)
    after: list[bytes] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        return len(self.before) >= self.num_before and len(self.after) >= self.num_after


@dataclass(kw_only=True)
class _Part:
    name: str
    hunks: list[_Hunk] = field(default_factory=list)


def read(path: Path, command: Sequence[str]) -> InForce:
    """The patch of a file, for a command that is started here. Raises UsageError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"the patch {path} cannot be read: {error.strerror}") from error
    return of(data, command, str(path))


def of(data: bytes, command: Sequence[str], name: str) -> InForce:
    """The patch ``data``. Its paths begin in the working folder, in that of a file the command names, or in a
    folder around one of them. Raises UsageError that calls it ``name``.
    """
    parts = _parts(data, name)
    errors: list[UsageError] = []
    for root in _roots(command):
        if all((root / part.name).is_file() for part in parts):
            try:
                return InForce(diff=data, files=dict(_patched(root, part, name) for part in parts))
            except UsageError as error:
                errors.append(error)
    hint = "run it in the folder it was made for"
    missing = next((part.name for part in parts if not Path(part.name).is_file()), parts[0].name)
    raise errors[0] if errors else UsageError(f"{name} does not apply: {missing} is not there", hint=hint)


def _roots(command: Iterable[str]) -> list[Path]:
    folders = [Path.cwd(), *(Path(word).resolve().parent for word in command if _is_file(word))]
    return list(dict.fromkeys([*folders, *(above for one in folders for above in one.parents)]))


def _is_file(word: str) -> bool:
    try:
        return Path(word).is_file()
    except (OSError, ValueError):  # a script after -c is too long for a name, or has none
        return False


def _patched(root: Path, part: _Part, patch: str) -> tuple[Path, bytes]:
    path = Path(os.path.realpath(root / part.name))
    try:
        lines = _lines(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{patch} does not apply: {part.name}: {error.strerror}") from error
    if "\n" in str(path):
        raise UsageError(f"{patch} cannot be put in force: a path of several lines: {path!r}")
    found: list[bytes] = []
    at = 0
    for hunk in part.hunks:
        if hunk.start < at or lines[hunk.start : hunk.start + len(hunk.before)] != hunk.before:
            raise UsageError(
                f"{patch} does not apply: {part.name} differs from line {hunk.start + 1} on",
                hint="it changed since, or has the change: hotloop fix RUN makes the patch anew",
            )
        found += [*lines[at : hunk.start], *hunk.after]
        at = hunk.start + len(hunk.before)
    return path, b"".join([*found, *lines[at:]])


def _parts(data: bytes, patch: str) -> list[_Part]:
    """The files of a unified diff with their changes, each once. Raises UsageError."""
    parts: list[_Part] = []
    hunk: _Hunk | None = None
    last: list[list[bytes]] = []
    old, by_git = b"", False
    for line in _lines(data):
        if hunk is not None and line.startswith(b"\\"):  # no newline at the end of the line before
            for side in last:
                side[-1] = side[-1].removesuffix(b"\n")
        elif hunk is not None and not hunk.whole:
            last = _sides(hunk, line[:1])
            if not last:
                raise UsageError(f"{patch} is no unified diff: a change of {parts[-1].name} is cut short")
            for side in last:
                side.append(line[1:] or line)
        elif line.startswith(b"diff --git "):
            by_git = True
        elif by_git and line.startswith(_OTHER):
            words = line.decode("utf-8", "replace").strip()
            raise UsageError(
                f"{patch} does more than change text: {words}", hint="write it: git apply, then run"
            )
        elif line.startswith(b"--- "):
            old = line
        elif line.startswith(b"+++ "):
            parts.append(_Part(name=_name(old, line, patch)))
        elif (head := _HUNK.match(line)) is not None and parts:
            first, num_before, num_after = (int(text) if text else 1 for text in head.groups())
            hunk = _Hunk(start=max(0, first - (num_before > 0)), num_before=num_before, num_after=num_after)
            parts[-1].hunks.append(hunk)
    if hunk is None or not all(part.hunks for part in parts):
        raise UsageError(f"{patch} holds no change", hint="make one: hotloop fix RUN > FILE")
    if not hunk.whole:
        raise UsageError(f"{patch} is no unified diff: a change of {parts[-1].name} is cut short")
    if len({part.name for part in parts}) < len(parts):
        raise UsageError(f"{patch} changes a file twice")
    return parts


def _sides(hunk: _Hunk, kind: bytes) -> list[list[bytes]]:
    """Which texts a line of a change belongs to; editors cut the blank off an empty line."""
    before, after = hunk.before, hunk.after
    return {b" ": [before, after], b"\n": [before, after], b"-": [before], b"+": [after]}.get(kind, [])


def _name(old: bytes, new: bytes, patch: str) -> str:
    """The file that a pair of headers names. Raises UsageError for one that is none of the user's Python."""
    before, after = (os.fsdecode(line[4:].rstrip(b"\r\n").partition(b"\t")[0]) for line in (old, new))
    if before[1:2] == after[1:2] == "/" and before[0] != after[0]:  # a/ and b/, or git's i/, w/, c/, o/
        after = after[2:]
    if "/dev/null" in (before, after):
        raise UsageError(
            f"{patch} makes or deletes a file, not only changes text", hint="write it: git apply, then run"
        )
    if Path(after).is_absolute() or ".." in Path(after).parts:
        raise UsageError(f"{patch} changes {after}, which lies outside the folder it is applied in")
    if not after.endswith(".py"):
        raise UsageError(
            f"{patch} changes {after}, which is not Python: only what Python loads can be put in force",
            hint="write it with hotloop fix --write, or git apply, then run",
        )
    return after


def _lines(data: bytes) -> list[bytes]:
    """Lines as git sees them: only ``\\n`` ends one."""
    return re.findall(rb"[^\n]*\n|[^\n]+", data)
