"""A file of text in whole lines, whatever its compression, encoding and damage, in bounded memory."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final, cast

import numpy as np

#: Bytes read at a time. A line longer than this is damage.
CHUNK_BYTES: Final = 2 * 2**20

_ESCAPES: Final = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
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
    return cast(IO[bytes], opener(path))


def head(path: Path, num_bytes: int = 256 * 1024) -> bytes:
    """The first bytes as UTF-8 text would have them; what a damaged archive still gives."""
    with opened(path) as file:
        data = _some(file, num_bytes, Damage())
    encoding = _encoding(data)
    return data.decode(encoding, "replace").encode() if encoding else data.removeprefix(b"\xef\xbb\xbf")


def chunks(path: Path, damage: Damage, progress: Callable[[int], None] | None = None) -> Iterator[Chunk]:
    """The file's lines, chunk by chunk. Raises OSError only where the file cannot be opened."""
    with opened(path) as file:
        first = _some(file, CHUNK_BYTES, damage)
        encoding = _encoding(first)
        if encoding:
            damage.note(f"{encoding.upper()} text")
            blocks = _decoded(first, file, encoding, damage)
        else:
            blocks = _blocks(first.removeprefix(b"\xef\xbb\xbf"), file, damage)
        line = 1
        for block in _whole_lines(blocks, damage):
            damage.num_bytes += len(block)
            if progress is not None:
                progress(len(block))
            chunk = _chunk(block, line, damage)
            yield chunk
            line += block.count(b"\n")
            damage.lines = line - (1 if block.endswith(b"\n") else 0)


def _chunk(block: bytes, line: int, damage: Damage) -> Chunk:
    if b"\x1b" in block:
        block = _ESCAPES.sub(b"", block)
    if block.translate(None, _GOOD):
        damage.note("control characters")
        damage.skipped += _num_damaged(block)
        block = block.translate(None, _CONTROL)
    raw = b"\n" + block
    body = raw.translate(_RETURNS) if b"\r" in raw else raw
    return Chunk(body=body, raw=raw, first_line=line)


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


def _blocks(first: bytes, file: IO[bytes], damage: Damage) -> Iterator[bytes]:
    block = first
    while block:
        yield block
        block = _some(file, CHUNK_BYTES, damage)


def _decoded(first: bytes, file: IO[bytes], encoding: str, damage: Damage) -> Iterator[bytes]:
    decoder = io.IncrementalNewlineDecoder(_incremental(encoding), translate=False)
    for block in _blocks(first, file, damage):
        yield decoder.decode(block).lstrip("\ufeff").encode("utf-8", "replace")


def _incremental(encoding: str):  # type: ignore[no-untyped-def]  # codecs has no public name for it
    import codecs

    return codecs.getincrementaldecoder(encoding)("replace")


def _encoding(data: bytes) -> str | None:
    """A 16-bit encoding, by its mark or by where its zero bytes are; None for everything else."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16-le" if data[:1] == b"\xff" else "utf-16-be"
    probe = data[:4096]
    half = len(probe) // 2
    if half < 8:
        return None
    even, odd = probe[::2].count(0), probe[1::2].count(0)
    if odd > 0.6 * half and even < 0.1 * half:
        return "utf-16-le"
    return "utf-16-be" if even > 0.6 * half and odd < 0.1 * half else None


def _whole_lines(blocks: Iterator[bytes], damage: Damage) -> Iterator[bytes]:
    """Blocks cut after a separator. Of a line longer than a chunk only its beginning is kept."""
    rest, dropping = b"", False
    for block in blocks:
        if dropping:
            end = _first_end(block)
            if end < 0:
                continue
            block, dropping = block[end:], False
        block = rest + block if rest else block
        cut = max(block.rfind(b"\n"), block.rfind(b"\r")) + 1
        if cut == 0 and len(block) >= CHUNK_BYTES:
            damage.skipped += 1
            damage.note(f"a line of more than {CHUNK_BYTES >> 20} MiB")
            yield block[:65536] + b"\n"
            rest, dropping = b"", True
            continue
        rest = block[cut:]
        if cut:
            yield block[:cut]
    if rest:
        yield rest


def _first_end(block: bytes) -> int:
    ends = [at for at in (block.find(b"\n"), block.find(b"\r")) if at >= 0]
    return min(ends) + 1 if ends else -1
