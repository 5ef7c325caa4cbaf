"""TensorBoard's event files: TFRecord frames around ``Event`` messages, without TensorBoard.

A frame is a length (u64), a checksum of it, the message, a checksum of that. Of an Event fields
1 (wall_time), 2 (step) and 5 (summary) are read, of a summary's values field 1 (tag) and 2 (simple_value).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from hotloop.logs.reading import Damage, opened

_LONGEST: Final = 256 * 2**20


def is_events(path: Path) -> bool:
    """Whether a file starts as event files do: with a frame that holds their version."""
    with opened(path) as file:
        return b"\x1a\x0dbrain.Event:" in file.read(64)


def events(path: Path, damage: Damage) -> Iterator[tuple[int, float, float, dict[str, float]]]:
    """Number, wall time, step and scalars by tag of each event."""
    with opened(path) as file:
        for number, message in _frames(file, damage):
            damage.lines = number
            try:
                yield number, *_event(message)
            except (ValueError, IndexError, struct.error):
                damage.skipped += 1


def _frames(file: IO[bytes], damage: Damage) -> Iterator[tuple[int, bytes]]:
    number = 0
    while start := file.read(12):
        number += 1
        length = struct.unpack("<Q", start[:8])[0] if len(start) == 12 else 0
        message = file.read(length + 4) if length <= _LONGEST else b""
        damage.num_bytes += len(start) + len(message)
        if len(start) < 12 or len(message) < length + 4:
            damage.skipped += 1
            damage.note("truncated" if length <= _LONGEST else f"damaged after {number - 1:,} events")
            return
        yield number, message[:-4]


def _event(message: bytes) -> tuple[float, float, dict[str, float]]:
    wall_s, step, scalars = 0.0, 0.0, {}
    for field, value in _fields(message):
        if field == 1 and isinstance(value, bytes):
            wall_s = struct.unpack("<d", value)[0]
        elif field == 2 and isinstance(value, int):
            step = float(value)
        elif field == 5 and isinstance(value, bytes):
            found = (_scalar(one) for number, one in _fields(value) if number == 1 and isinstance(one, bytes))
            scalars = {tag: scalar for tag, scalar in found if scalar is not None}
    return wall_s, step, scalars


def _scalar(message: bytes) -> tuple[str, float | None]:
    """The tag of a summary's value, and its number where it is one."""
    tag, scalar = "", None
    for field, value in _fields(message):
        if field == 1 and isinstance(value, bytes):
            tag = value.decode("utf-8", "replace")
        elif field == 2 and isinstance(value, bytes):
            scalar = struct.unpack("<f", value)[0]
    return tag, scalar


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
