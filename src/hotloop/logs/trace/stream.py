"""The events of a Chrome trace as a stream of blocks: a gigabyte needs no more memory than a megabyte.

Kineto writes every event in one shape, so whole blocks go through one regular expression. What it does not
find is a damaged event, or another writer's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from hotloop.logs.reading import BAD, opened

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
