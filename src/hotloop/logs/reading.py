"""A file of text in whole lines, whatever its compression, encoding and damage, in bounded memory."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, Self, cast

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
        data = np.frombuffer(block, dtype=np.uint8)
        line_of = np.searchsorted(np.flatnonzero(data == 10), np.flatnonzero(_IS_CONTROL[data]))
        damage.skipped += len(np.unique(line_of))
        block = block.translate(None, _CONTROL)
    raw = b"\n" + block
    body = raw.translate(_RETURNS) if b"\r" in raw else raw
    return Chunk(body=body, raw=raw, first_line=line)


def _without_ours(text: bytes) -> bytes:
    """Empty lines for hotloop's own report and remarks: what was run under it may have been kept by tee."""
    return _OURS.sub(lambda found: b"\n" * found[0].count(b"\n"), text) if b"hotloop" in text else text


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


# A JSON document as a stream of events


BLOCK_BYTES: Final = 4 * 2**20
#: An event that is longer than this has no end.
_MAX_PENDING_BYTES: Final = 64 * 2**20

#: One complete event ("X") as Kineto writes it. Groups: category and name, process and thread, ts, dur,
#: correlation, bytes. Possessive, so that a near miss costs nothing.
_EVENT: Final = re.compile(
    rb'"ph" *+: *+"X",\s*+'
    rb'"cat" *+: *+("[^"\\]*+",\s*+"name" *+: *+"[^"\\]*+(?:\\.[^"\\]*+)*+"),\s*+'
    rb'"pid" *+: *+([^,{}]*+,\s*+"tid" *+: *+[^,{}]*+),\s*+'
    rb'"ts" *+: *+([0-9]++(?:\.[0-9]++)?+),\s*+"dur" *+: *+([0-9]++(?:\.[0-9]++)?+)\s*+(?=[,}])'
    rb'(?:\s*+,\s*+"args" *+: *+\{\s*+'
    rb'(?:"(?!correlation")[^"]*+" *+: *+(?:"[^"\\]*+"|\[[^\[\]]*+\]|[^",\[\]{}]*+),\s*+)*+'
    rb'"correlation" *+: *+([0-9]++)(?:,\s*+"bytes" *+: *+([0-9]++))?)?'
)
_COMPLETE: Final = re.compile(rb'"ph" *: *"X"')
_FIRST: Final = re.compile(rb'\{\s*"')
#: What may stand behind the last event: the end of the file's object, or its next key.
_CLOSED: Final = re.compile(rb'\}\s*\]\s*(?:\Z|\}\s*\Z|,\s*")|^\s*\]')
_ARRAY: Final = re.compile(rb'"traceEvents"\s*:\s*\[')

#: category and name, process and thread, ts, dur, correlation, bytes; as they stand in the file.
Row = tuple[bytes, bytes, bytes, bytes, bytes, bytes]


@dataclass(kw_only=True)
class Reading:
    """What the stream has seen so far; complete when the iteration has ended."""

    header: dict[str, Any]
    num_events: int = 0  # complete ones: with a beginning and a duration
    skipped: int = 0
    truncated: bool = False
    problem: str = ""  # why the file could not be read to its end


def is_trace(path: Path) -> bool:
    """Whether a file is Chrome trace JSON, plain or gzipped, by its beginning."""
    try:
        with opened(path) as stream:
            head = stream.read(2**20)
    except BAD:
        return False
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if head[:1] == b"[":
        return re.match(rb'\[\s*\{[^{}]{0,4096}"ph"\s*:', head) is not None
    if head[:1] != b"{":
        return False
    kineto = b'"schemaVersion"' in head[:256] and b'"deviceProperties"' in head
    return kineto or _ARRAY.search(head) is not None


def read_rows(stream: IO[bytes], reading: Reading) -> Iterator[list[Row]]:
    """Complete events in blocks; keeps ``reading`` up to date."""
    blocks = _blocks(stream, reading)
    pending = _header(blocks, reading)
    if pending is None:
        reading.truncated = True
        return
    for block in blocks:
        pending += block
        last = _last_event(pending)
        yield _rows(pending[:last], reading)
        pending = pending[last:] if len(pending) - last < _MAX_PENDING_BYTES else b""
    last = _last_event(pending)
    yield _rows(pending[:last], reading)
    event = pending[last:]
    closed = _CLOSED.search(event) is not None
    reading.truncated |= not closed
    if closed or event.count(b"{") <= event.count(b"}"):
        yield _rows(event, reading)


def _rows(data: bytes, reading: Reading) -> list[Row]:
    rows: list[Row] = _EVENT.findall(data)
    reading.num_events += len(rows)
    reading.skipped += max(0, len(_COMPLETE.findall(data)) - len(rows))
    return rows


def _last_event(data: bytes) -> int:
    """Where the last event begins: it may go on in the next block."""
    key = data.rfind(b'"ph"')
    brace = data.rfind(b"{", 0, key) if key >= 0 else -1
    return brace if brace >= 0 and _FIRST.fullmatch(data, brace, key + 1) else 0


def _blocks(stream: IO[bytes], reading: Reading) -> Iterator[bytes]:
    """The file to its end, or to where it cannot be unpacked."""
    while True:
        try:
            block = stream.read(BLOCK_BYTES)
        except BAD as error:
            reading.truncated = True
            reading.problem = str(error) or type(error).__name__
            return
        if not block:
            return
        yield block


def _header(blocks: Iterator[bytes], reading: Reading) -> bytes | None:
    """The bytes after the opening of the array of events, None where there is none."""
    head = b""
    for block in blocks:
        head = (head + block).removeprefix(b"\xef\xbb\xbf").lstrip()
        if head[:1] == b"[":
            return head[1:]
        found = _ARRAY.search(head)
        if found is not None:
            reading.header = _properties(head[: found.end()])
            return head[found.end() :]
        if len(head) > _MAX_PENDING_BYTES:
            break
    return None


def _properties(head: bytes) -> dict[str, Any]:
    """What stands before the events."""
    try:
        known = json.loads(head + b"]}", strict=False)
    except (ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}
