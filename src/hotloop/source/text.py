"""A file as text that can be edited by spans and written back byte for byte, and the diff that shows it."""

from __future__ import annotations

import codecs
import difflib
import io
import os
import re
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hotloop import foreign


@dataclass(frozen=True, kw_only=True)
class Text:
    """A file's text with its line ends as they are; ``bom`` is what stood before it."""

    path: Path
    text: str
    encoding: str = "utf-8"
    bom: bytes = b""

    def encoded(self, text: str) -> bytes:
        """Another text as the bytes of this file. Raises UnicodeEncodeError where its encoding cannot."""
        return self.bom + text.encode(self.encoding)

    @property
    def newline(self) -> str:
        """How the file ends its lines."""
        return "\r\n" if "\r\n" in self.text else "\n"

    def line(self, offset: int) -> int:
        """The line, from 1, that a character stands in."""
        return self.text.count("\n", 0, offset) + 1


@dataclass(frozen=True, kw_only=True, order=True)
class Edit:
    """Characters ``start`` to ``end`` become ``new``. Edits at one place are taken in the order given."""

    start: int
    end: int
    new: str


def read(path: Path) -> Text:
    """Raises OSError, and ValueError where the bytes are no text."""
    return decoded(path, foreign.read(path))


def decoded(path: Path, data: bytes) -> Text:
    """The text of these bytes; a Python file may name its encoding. Raises ValueError."""
    bom = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    encoding = "utf-8"
    if path.suffix == ".py":
        try:
            encoding = tokenize.detect_encoding(io.BytesIO(data).readline)[0]
        except SyntaxError as error:
            raise ValueError(str(error)) from error
        encoding = "utf-8" if encoding == "utf-8-sig" else encoding
    body = data.removeprefix(bom)
    text = body.decode(encoding)
    if text.encode(encoding) != body:
        raise ValueError(f"cannot be written back as {encoding}")
    return Text(path=path, text=text, encoding=encoding, bom=bom)


def edited(text: str, edits: Iterable[Edit]) -> str:
    """The text after all edits. Raises ValueError where two of them overlap."""
    parts: list[str] = []
    at = 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        if edit.start < at:
            raise ValueError("two changes overlap")
        parts += [text[at : edit.start], edit.new]
        at = edit.end
    return "".join([*parts, text[at:]])


def diff(path: str, before: bytes, after: bytes) -> str:
    """A unified diff with git's headers, as text whose bytes are those of the files (surrogateescape)."""
    old, new = (data.decode("utf-8", "surrogateescape") for data in (before, after))
    left, right = _quoted(f"a/{path}"), _quoted(f"b/{path}")
    tab = "\t" if " " in path and left[0] != '"' else ""  # so that a blank does not end the name
    lines = difflib.unified_diff(_lines(old), _lines(new), left + tab, right + tab)
    body = [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines]
    if not body:
        return ""
    return "".join([f"diff --git {left} {right}\n", *body])


def _lines(text: str) -> list[str]:
    """Lines as git sees them: only ``\\n`` ends one."""
    return [line for line in re.split(r"(?<=\n)", text) if line]


def _quoted(path: str) -> str:
    """A path as git writes it: in quotes and octal where it has characters that end or confuse a header."""
    raw = os.fsencode(path)
    if all(32 <= byte < 127 and byte not in b'"\\' for byte in raw):
        return path
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:03o}" for b in raw) + '"'
