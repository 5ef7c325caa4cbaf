"""The events of a Chrome trace as a stream of blocks: a gigabyte needs no more memory than a megabyte.

Kineto writes every event in one shape, so whole blocks go through one regular expression. A block in which it
finds fewer events than there are (another writer, other key order, a damaged event) is read event by event
with ``json`` instead, which is slower and forgives more.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, cast

from hotloop.logs.reading import BAD, opened

BLOCK_BYTES: Final = 4 * 2**20
#: Only so much is kept while the end of a damaged event is looked for.
MAX_PENDING_BYTES: Final = 64 * 2**20

#: One complete event ("X") as Kineto writes it. Groups: category and name, process and thread, ts, dur,
#: correlation, bytes. Possessive, so that a near miss costs nothing.
_EVENT: Final = re.compile(
    rb'"ph" *+: *+"X",\s*+'
    rb'"cat" *+: *+("[^"\\]*+",\s*+"name" *+: *+"[^"\\]*+(?:\\.[^"\\]*+)*+"),\s*+'
    rb'"pid" *+: *+([^,{}]*+,\s*+"tid" *+: *+[^,{}]*+),\s*+'
    rb'"ts" *+: *+([0-9.]++),\s*+"dur" *+: *+([0-9.]++)\s*+(?=[,}])'
    rb'(?:\s*+,\s*+"args" *+: *+\{\s*+'
    rb'(?:"(?!correlation")[^"]*+" *+: *+(?:"[^"\\]*+"|[^",\[\]{}]*+),\s*+)*+'
    rb'"correlation" *+: *+([0-9]++)(?:,\s*+"bytes" *+: *+([0-9]++))?)?'
)
_CORRELATED: Final = (b'"kernel"', b'"gpu_mem', b'"cuda_', b'"xpu_', b'"privateuse1_')
_FIRST: Final = re.compile(rb'\{\s*"')
_START: Final = re.compile(r'\{\s*"(?:ph|name|cat|pid|tid|ts|dur|args)"\s*:')
_NEXT: Final = re.compile(rf"\}}\s*,\s*(?={_START.pattern})")
#: What may stand behind the last event: nothing, the end of the file's object, or its next key.
_END: Final = re.compile(r'\]\s*(?:\}\s*)?\Z|\]\s*,\s*(?:"|\Z)')
_KEY: Final = re.compile(r'"ph"\s*:')  # in a string its quotes would be escaped
_PHASE: Final = re.compile(r'\{\s*"ph"\s*:\s*"')
_ARRAY: Final = re.compile(rb'"traceEvents"\s*:\s*\[')
_SEPARATORS: Final = re.compile(r"[\s,]*")
_DECODER: Final = json.JSONDecoder(strict=False)

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


def looks_like_trace(path: Path) -> bool:
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


def read_rows(
    stream: IO[bytes], reading: Reading, progress: Callable[[int], None] | None
) -> Iterator[list[Row]]:
    """Complete events in blocks; keeps ``reading`` up to date, tells ``progress`` the bytes of each block."""
    blocks = _blocks(stream, reading, progress)
    pending = _header(blocks, reading)
    if pending is None:
        reading.truncated = True
        return
    for block in blocks:
        pending += block
        rows, pending = _fast(pending, reading) or _slow(pending, reading)
        yield rows
    rows, rest = _slow(pending, reading)
    if not rest.lstrip(b" \r\n\t,").startswith(b"]"):
        reading.truncated = True
    yield rows


def _blocks(stream: IO[bytes], reading: Reading, progress: Callable[[int], None] | None) -> Iterator[bytes]:
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
        if progress is not None:
            progress(len(block))
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
        if len(head) > MAX_PENDING_BYTES:
            break
    return None


def _properties(head: bytes) -> dict[str, Any]:
    """What stands before the events."""
    try:
        known = json.loads(head + b"]}", strict=False)
    except (ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}


def _fast(data: bytes, reading: Reading) -> tuple[list[Row], bytes] | None:
    """Events by one regular expression, up to the last beginning of one; None if it does not find all."""
    first = data.find(b'"ph"')
    cut = data.rfind(b'"ph"')
    brace = data.rfind(b"{", first, cut)
    if first < 0 or brace < 0 or not _FIRST.fullmatch(data, brace, cut + 1):
        return None
    whole = data[:brace]
    rows: list[Row] = _EVENT.findall(whole)
    complete = data[first : data.find(b'"', first + 4)] + b'"X"'
    if len(rows) != whole.count(complete):
        return None
    # A correlation that the expression did not get to: behind a list, say.
    if any(not row[4] and row[0].startswith(_CORRELATED) for row in rows) and (
        sum(1 for row in rows if row[4]) != whole.count(b'"correlation"')
    ):
        return None
    reading.num_events += len(rows)
    return rows, data[brace:]


def _slow(data: bytes, reading: Reading) -> tuple[list[Row], bytes]:
    """Events one by one, and what is left: an event that is not whole yet, or the end of the array."""
    text = data.decode("utf-8", "surrogateescape")
    rows: list[Row] = []
    at = 0
    while True:
        at = cast("re.Match[str]", _SEPARATORS.match(text, at)).end()
        if at >= len(text) or _ends(text, at):
            break
        if text[at] != "{":  # such as a bracket in the place of a comma: one value of all that follow
            start = _START.search(text, at)
            if start is None and len(text) - at < MAX_PENDING_BYTES:
                break
            reading.skipped += 1
            at = start.start() if start else len(text)
            continue
        try:
            event, end = _DECODER.raw_decode(text, at)
            following = _swallowed(text, at, end)
        except (ValueError, RecursionError):
            event, end, following = None, None, _NEXT.search(text, at)
        if following is not None or end is None:
            if following is None and len(text) - at < MAX_PENDING_BYTES:
                break
            reading.skipped += 1
            at = following.end() if following else len(text)
            continue
        at = end
        row = _row(event)
        if row is not None:
            rows.append(row)
    reading.num_events += len(rows)
    return rows, text[at:].encode("utf-8", "surrogateescape")


def _swallowed(text: str, at: int, end: int) -> re.Match[str] | None:
    """Where the second of several events begins that a damaged one has taken for a list of its own."""
    phase = _KEY.search(text, at, end)
    if phase is None or _KEY.search(text, phase.end(), end) is None:
        return None
    return _NEXT.search(text, at, end)


def _ends(text: str, at: int) -> bool:
    """Whether the array of events ends here, and not a bracket that damage put between two of them."""
    return _END.match(text, at) is not None and _PHASE.search(text, at) is None


def _row(event: object) -> Row | None:
    """A decoded event in the shape of a matched one; None unless it is a complete event."""
    if not isinstance(event, dict) or event.get("ph") != "X":
        return None
    args = event.get("args")
    args = args if isinstance(args, dict) else {}
    return (
        _pair("name", event.get("cat", ""), event.get("name", "")),
        _pair("tid", event.get("pid", 0), event.get("tid", 0)),
        _number(event.get("ts")),
        _number(event.get("dur")),
        _integer(args.get("correlation")),
        _integer(args.get("bytes")),
    )


def _pair(second: str, *values: object) -> bytes:
    """Two values as they stand in a Kineto file: ``"kernel", "name": "gemm"``."""
    try:
        return _known_pair(second, *values)
    except TypeError:  # a list or an object where a name should be
        return _known_pair(second, *map(str, values))


@functools.lru_cache(maxsize=65536)
def _known_pair(second: str, *values: object) -> bytes:
    return f'%s, "{second}": %s'.encode() % tuple(json.dumps(value).encode() for value in values)


def _number(value: object) -> bytes:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return repr(value).encode() if number else b"0"


def _integer(value: object) -> bytes:
    return str(value).encode() if type(value) is int and value >= 0 else b""
