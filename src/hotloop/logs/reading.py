"""A file of text in whole lines, whatever its compression, encoding and damage, in bounded memory."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final, Self, cast

import numpy as np

from hotloop.units import size

#: Bytes read at a time. A line longer than this is damage.
CHUNK_BYTES: Final = 2 * 2**20
#: An archive of a few kilobytes may hold gigabytes. So much is read, for each packed byte and in all: logs
#: and traces hold 5 to 50 times their packed size.
_MOST_RATIO, _LEAST_UNPACKED, _MOST_UNPACKED = 200, 2**26, 2**31

_ESCAPES: Final = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
_OURS: Final = re.compile(rb"^hotloop(?:  \S.{,20000}?\nreport: |: )[^\n]*", re.M | re.S)
_CONTROL: Final = bytes(c for c in range(32) if c not in b"\t\n\r\x08\x0b\x0c\x1b")
_GOOD: Final = bytes(c for c in range(256) if c not in _CONTROL)
_IS_CONTROL: Final = np.isin(np.arange(256), np.frombuffer(_CONTROL, dtype=np.uint8))
_RETURNS: Final = bytes.maketrans(b"\r", b"\n")
BAD: Final = (OSError, EOFError, zlib.error, lzma.LZMAError)


@dataclass
class Damage:
    """What was wrong with a file: lines that could not be read, and words for people."""

    skipped: int = 0
    lines: int = 0
    num_bytes: int = 0
    notes: list[str] = field(default_factory=list)

    def note(self, words: str) -> None:
        """Say something once."""
        if words not in self.notes:
            self.notes.append(words)


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Whole lines. ``body`` starts with a newline and holds every separator as one; carriage returns too.

    ``raw`` is as long and keeps them; ``first_line`` counts from 1.
    """

    body: bytes
    raw: bytes
    first_line: int


class _Unpacked:
    """What an archive holds, as far as it is read."""

    def __init__(self, file: IO[bytes], packed_bytes: int) -> None:
        self._file = file
        self._left = self._most = min(_MOST_UNPACKED, max(_LEAST_UNPACKED, _MOST_RATIO * packed_bytes))

    def read(self, num_bytes: int) -> bytes:
        """Raises OSError behind the most."""
        if self._left <= 0:
            raise OSError(f"it holds more than {size(self._most)}")
        data = self._file.read(num_bytes)
        self._left -= len(data)
        return data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def opened(path: Path) -> IO[bytes]:
    """The file, decompressed where its first bytes say so."""
    with path.open("rb") as file:
        magic = file.read(6)
    opener: Callable[[Path], object] = Path(path).open  # type: ignore[assignment]
    if magic[:2] == b"\x1f\x8b":
        opener = gzip.open
    elif magic[:3] == b"BZh":
        opener = bz2.open
    elif magic == b"\xfd7zXZ\x00":
        opener = lzma.open
    else:
        return path.open("rb")
    return cast(IO[bytes], _Unpacked(cast(IO[bytes], opener(path)), path.stat().st_size))


def head(path: Path) -> bytes:
    """The first bytes; what a damaged archive still gives."""
    with opened(path) as file:
        return _without_ours(_some(file, 256 * 1024, Damage()).removeprefix(b"\xef\xbb\xbf"))


def chunks(path: Path, damage: Damage) -> Iterator[Chunk]:
    """The file's lines, chunk by chunk. Raises OSError only where the file cannot be opened."""
    with opened(path) as file:
        line = 1
        for block in _whole_lines(file, damage):
            damage.num_bytes += len(block)
            yield _chunk(block, line, damage)
            line += block.count(b"\n")
            damage.lines = line - (1 if block.endswith(b"\n") else 0)


def _chunk(block: bytes, line: int, damage: Damage) -> Chunk:
    if b"\x1b" in block:
        block = _ESCAPES.sub(b"", block)
    block = _without_ours(block)
    if block.translate(None, _GOOD):
        damage.note("control characters")
        damage.skipped += _num_damaged(block)
        block = block.translate(None, _CONTROL)
    raw = b"\n" + block
    body = raw.translate(_RETURNS) if b"\r" in raw else raw
    return Chunk(body=body, raw=raw, first_line=line)


def _without_ours(text: bytes) -> bytes:
    """Empty lines for hotloop's own report and remarks: what was run under it may have been kept by tee."""
    return _OURS.sub(lambda found: b"\n" * found[0].count(b"\n"), text) if b"hotloop" in text else text


def _num_damaged(block: bytes) -> int:
    """Lines with control characters in them."""
    data = np.frombuffer(block, dtype=np.uint8)
    return len(np.unique(np.searchsorted(np.flatnonzero(data == 10), np.flatnonzero(_IS_CONTROL[data]))))


def _some(file: IO[bytes], num_bytes: int, damage: Damage) -> bytes:
    """Up to so many bytes; a broken archive ends where it breaks, and that is noted."""
    try:
        return file.read(num_bytes)
    except BAD as error:
        if isinstance(error, EOFError):
            damage.note("the archive is truncated")
        else:
            damage.note(f"reading stopped: {error}")
        return b""


def _whole_lines(file: IO[bytes], damage: Damage) -> Iterator[bytes]:
    """Blocks cut after a separator; of a line longer than a block each part is one, which is damage."""
    rest = _some(file, CHUNK_BYTES, damage).removeprefix(b"\xef\xbb\xbf")
    while rest:
        cut = max(rest.rfind(b"\n"), rest.rfind(b"\r")) + 1
        more = _some(file, CHUNK_BYTES, damage)
        if not more or (not cut and len(rest) >= CHUNK_BYTES):
            cut = len(rest)
        if cut > CHUNK_BYTES and b"\n" not in rest[:CHUNK_BYTES]:
            damage.skipped += 1
            damage.note(f"a line of more than {CHUNK_BYTES >> 20} MiB")
        if cut:
            yield rest[:cut]
        rest = rest[cut:] + more
