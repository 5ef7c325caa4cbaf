"""The files that a run's code came from: read as they were when it ran, parsed once."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from hotloop.record.recording import Process
from hotloop.source.code import Code
from hotloop.source.nodes import argument, text_of
from hotloop.source.text import Text, read

#: What gives a mapping entries by keywords.
_FILLS = ("dict", "update", "setdefault")


def shown(source: str) -> str:
    """Source text in one short line."""
    text = " ".join(source.split())
    return text if len(text) <= 60 else text[:57] + "..."


class Cannot(Exception):  # noqa: N818 - an answer, not a failure
    """A change that is not made: why, where it belongs, and what to write or run instead, if it is known."""

    def __init__(self, why: str, file: str = "", line: int = 0, *, write: str = "") -> None:
        super().__init__(why)
        self.why, self.file, self.line, self.write = why, file, line, write


class Already(Cannot):
    """A change that has been made."""

    def __init__(self, why: str, file: str = "", line: int = 0) -> None:
        super().__init__(why, file, line, write="nothing is left to write")


@dataclass(frozen=True, kw_only=True)
class Sources:
    """The files of one training process."""

    process: Process
    launched: Path | None = None  # where the command was started, None not known
    started_unix_s: float | None = None  # when the run began
    _texts: dict[Path, Text] = field(default_factory=dict)
    _codes: dict[Path, Code] = field(default_factory=dict)

    @cached_property
    def cwd(self) -> Path:
        """Where the process was started: a script may have gone elsewhere before."""
        return Path(str(self.process.first("process").get("cwd") or "."))

    @property
    def started(self) -> Path:
        """The folder that the words of the command are read from."""
        return self.launched or self.cwd

    @cached_property
    def argv(self) -> tuple[str, ...]:
        """The script and its arguments, as the process saw them."""
        return tuple(map(str, self.process.first("process").get("argv") or ()))

    @cached_property
    def hashes(self) -> dict[Path, str]:
        """SHA-256 of every file of code as it ran."""
        return {Path(str(n["file"])): str(n.get("sha256")) for n in self.process.notes.get("source", ())}

    @cached_property
    def main(self) -> Path | None:
        """The script that was started."""
        script = self.argv[0] if self.argv else ""
        return self.cwd / script if script.endswith(".py") else None

    def text(self, file: Path | str) -> Text:
        """A file as it is now. Raises Cannot where it is not what ran."""
        path = Path(file)
        if path not in self._texts:
            try:
                found = read(path)
            except (OSError, ValueError) as error:
                words = getattr(error, "strerror", None) or str(error)
                raise Cannot(f"{path.name} cannot be read: {words}", str(path)) from None
            recorded = self.hashes.get(path)
            data = found.encoded(found.text)
            if recorded is not None and hashlib.sha256(data).hexdigest() != recorded:
                raise Cannot(f"{path.name} changed since the run: run again, then fix", str(path))
            self._texts[path] = found
        return self._texts[path]

    def code(self, file: Path | str) -> Code:
        """A Python file, parsed. Raises Cannot."""
        path = Path(file)
        if path not in self._codes:
            if not path.suffix == ".py":
                raise Cannot(f"{path.name or file} is no Python file", str(path))
            if any(part in ("site-packages", "dist-packages") for part in path.parts):
                raise Cannot(f"{path.name} belongs to an installed package", str(path))
            text = self.text(path)
            try:
                self._codes[path] = Code(text)
            except ValueError as error:
                raise Cannot(str(error).replace(str(path), path.name), str(path)) from None
        return self._codes[path]

    def files(self) -> list[Path]:
        """The files of code that ran, the main script first."""
        return sorted(self.hashes, key=lambda path: (path != self.main, str(path)))

    def loaded(self) -> list[Path]:
        """The user's files that were loaded, those of them first that were seen to run."""
        loaded = (file for note in self.process.notes.get("files", ()) for file in note.get("files", ()))
        return list(dict.fromkeys([*self.files(), *map(Path, loaded)]))

    def codes(self, word: str) -> Iterator[Code]:
        """The user's files that were loaded and hold a word; those that cannot be read are left out."""
        for path in self.loaded():
            try:
                if word in self.text(path).text:
                    yield self.code(path)
            except Cannot:
                continue

    def spells(self, key: str) -> bool:
        """Whether the user's code has an entry of that name somewhere: what is spread may hold it."""
        return any(
            any(text_of(node) == key for node in code.nodes(ast.Constant))
            or any(argument(call, key) is not None for name in _FILLS for call in code.calls(name))
            for code in self.codes(key)
        )

    def unchanged(self, path: Path) -> None:
        """Raises Cannot where a file without a checksum was written since the run began."""
        if path not in self.hashes and self.started_unix_s and path.stat().st_mtime > self.started_unix_s:
            raise Cannot(f"{path.name} changed since the run: run again, then fix", str(path))

    def module(self, name: str, importer: Path) -> Path | None:
        """The user's file that an import names: beside the main script, the importer, or in the folder."""
        if not name:
            return None
        inside = Path(*name.split("."))
        roots = [importer.parent, self.cwd, *([self.main.parent] if self.main else [])]
        roots += [folder for folder in importer.parents if self.cwd in (folder, *folder.parents)]
        for root in dict.fromkeys(roots):
            for candidate in (root / inside.with_suffix(".py"), root / inside / "__init__.py"):
                if candidate.is_file():
                    return candidate
        return None
