"""TensorBoard's event files: TFRecord frames around ``Event`` messages, without TensorBoard.

A frame is a length (u64), a checksum of it, the message, a checksum of that. Of an Event fields
1 (wall_time), 2 (step) and 5 (summary) are read, of a summary's values field 1 (tag), 2 (simple_value) and
8 (tensor, of one float or double).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final

import numpy as np

from hotloop.logs.meanings import evaluating, role_of
from hotloop.logs.pauses import Piece
from hotloop.logs.reading import opened
from hotloop.logs.streams import Stream
from hotloop.logs.text import Read, note_losses

_LONGEST: Final = 256 * 2**20
_MAX_TAGS: Final = 256
_BATCH: Final = 20_000


def is_events(path: Path) -> bool:
    """Whether a file starts as event files do: with a frame that holds their version."""
    with opened(path) as file:
        return b"\x1a\x0dbrain.Event:" in file.read(64)


def read_events(path: Path, read: Read, progress: Callable[[int], None] | None = None) -> Read:
    """Every scalar as a stream of its own: step, wall time, value."""
    tags = _Tags(read)
    with opened(path) as file:
        for number, message in _frames(file, read, progress):
            read.damage.lines = number
            try:
                tags.take(number, message)
            except (ValueError, IndexError, struct.error):
                read.damage.skipped += 1
    tags.done()
    return read


def _frames(
    file: IO[bytes], read: Read, progress: Callable[[int], None] | None
) -> Iterator[tuple[int, bytes]]:
    number = 0
    while True:
        start = file.read(12)
        if not start:
            return
        number += 1
        length = struct.unpack("<Q", start[:8])[0] if len(start) == 12 else 0
        if len(start) < 12 or length > _LONGEST:
            read.damage.skipped += 1
            read.damage.note("truncated" if len(start) < 12 else f"damaged after {number - 1:,} events")
            return
        message = file.read(length + 4)
        read.damage.num_bytes += len(message) + 12
        if progress is not None:
            progress(len(message) + 12)
        if len(message) < length + 4:
            read.damage.skipped += 1
            read.damage.note("truncated")
            return
        yield number, message[:-4]


class _Tags:
    """Values by tag, handed to streams in batches."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._values: dict[bytes, list[tuple[int, float, float, float]]] = {}
        self._streams: dict[bytes, Stream] = {}

    def take(self, number: int, message: bytes) -> None:
        wall, step, summaries = 0.0, 0.0, []
        for field, value in _fields(message):
            if field == 1 and isinstance(value, bytes):
                wall = struct.unpack("<d", value)[0]
            elif field == 2 and isinstance(value, int):
                step = float(value)
            elif field == 5 and isinstance(value, bytes):
                summaries.append(value)
        for summary in summaries:
            for field, value in _fields(summary):
                if field == 1 and isinstance(value, bytes):
                    self._value(number, wall, step, value)

    def _value(self, number: int, wall: float, step: float, message: bytes) -> None:
        tag, scalar = b"", None
        for field, value in _fields(message):
            if field == 1 and isinstance(value, bytes):
                tag = value
            elif field == 2 and isinstance(value, bytes):
                scalar = struct.unpack("<f", value)[0]
            elif field == 8 and isinstance(value, bytes):
                scalar = _tensor(value)
        if scalar is None or (tag not in self._values and len(self._values) >= _MAX_TAGS):
            return
        rows = self._values.setdefault(tag, [])
        rows.append((number, wall, step, scalar))
        if len(rows) >= _BATCH:
            self._flush(tag)

    def _flush(self, tag: bytes) -> None:
        rows = np.array(self._values[tag])
        self._values[tag] = []
        if not len(rows):
            return
        name = tag.decode("utf-8", "replace")
        mode = "evaluation" if evaluating(name) else "train"
        found = role_of(name, "") if mode == "train" else None
        columns = {"line": rows[:, 0], "clock": rows[:, 1], "step": rows[:, 2]}
        if found is not None and not found[0].startswith("stage:") and found[0] not in columns:
            columns[found[0]] = rows[:, 3] * found[1]
        if mode == "train":
            note_losses(self._read, columns)
        if tag not in self._streams:
            self._streams[tag] = Stream(name=name, mode=mode)
            self._read.streams.append(self._streams[tag])
        self._streams[tag].add(columns)

    def done(self) -> None:
        for tag in list(self._values):
            self._flush(tag)
        trained = [stream for stream in self._read.streams if stream.mode == "train"]
        main = max(trained, key=lambda stream: stream.num_rows, default=None)
        if main is not None:
            starts = np.zeros(len(main.columns["line"]), dtype=np.int64)
            self._read.pauses.watch([Piece(mode="train", starts=starts, columns=main.columns)], b"")


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers and values of a protobuf message; ValueError where it is none."""
    at, end = 0, len(message)
    while at < end:
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if kind == 2:
            size, at = _varint(message, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError("no protobuf")
        if at + size > end:
            raise ValueError("cut short")
        yield key >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("no varint")


def _tensor(message: bytes) -> float | None:
    """A scalar TensorProto: dtype 1 (float) or 2 (double), packed or in tensor_content."""
    kind, content = 0, b""
    for field, value in _fields(message):
        if field == 1 and isinstance(value, int):
            kind = value
        elif field in (4, 5, 6) and isinstance(value, bytes):
            content = value
    code = {1: ("<f", 4), 2: ("<d", 8)}.get(kind)
    return struct.unpack(code[0], content)[0] if code and len(content) == code[1] else None
