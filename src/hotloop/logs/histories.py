"""Histories of trackers, as records: JSON lines, JSON with a list, CSV, TensorBoard's event files."""

from __future__ import annotations

import csv
import json
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from hotloop.logs.meanings import Stream, evaluating, role_of
from hotloop.logs.pauses import Piece
from hotloop.logs.reading import Damage, chunks, opened
from hotloop.logs.text import Read, note_losses, worth_reading
from hotloop.logs.text import number as number_of
from hotloop.logs.tokens import moment

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


_NUMBER: Final = re.compile(r"\s*([-+]?[\d.,]+(?:[eE][-+]?\d+)?)")
_DECODER: Final = json.JSONDecoder()
#: Records of event files that are handed on at once.
_BATCH: Final = 20_000
Record = Mapping[str, Any]
#: What a record of evaluation has as well.
_ALONE: Final = {"step", "epoch", "clock", "elapsed", "lr"}


class _Rows:
    """Hands records to streams; one stream per mode and GPU."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._streams: dict[str, Stream] = {}
        self._keys: dict[str, tuple[str, float] | None] = {}

    def add(self, records: list[tuple[int, Record]]) -> None:
        """Records of one batch with their lines."""
        by_mode: dict[str, list[tuple[int, dict[str, float]]]] = {"train": [], "evaluation": []}
        for line, record in records:
            values = self._values(record)
            if values:
                mode = "evaluation" if evaluating(str(record.get("mode", ""))) else "train"
                by_mode[mode].append((line, values))
        for mode, rows in by_mode.items():
            self._add(rows, mode)

    def _values(self, record: Record) -> dict[str, float]:
        """Values by role; nothing of a record that holds evaluation only."""
        found: dict[str, float] = {}
        for key, value in record.items():
            if isinstance(value, dict):
                found |= self._values({f"{key}/{inner}": more for inner, more in value.items()})
                continue
            if key not in self._keys:
                self._keys[key] = _key_role(key)
            known = self._keys[key]
            if known is not None and known[0] not in found and value != "":
                role, factor = known
                found[role] = _value(value, role) * factor
        return {} if found.keys() <= _ALONE and any(map(evaluating, record)) else found

    def _add(self, rows: list[tuple[int, dict[str, float]]], mode: str) -> None:
        roles = list(dict.fromkeys(role for _, values in rows for role in values))
        columns = {role: np.array([values.get(role, np.nan) for _, values in rows]) for role in roles}
        columns["line"] = np.array([line for line, _ in rows], dtype=float)
        columns["has_loss"] = np.array([float("loss" in values) for _, values in rows])
        if not worth_reading(list(columns)) or not len(columns["line"]):
            return
        note_losses(self._read, columns)
        starts = np.zeros(len(columns["line"]), dtype=np.int64)
        self._read.pauses.watch([Piece(mode=mode, starts=starts, columns=columns)], b"")
        gpus = columns.pop("gpu", np.zeros(0))
        for gpu in np.unique(gpus[np.isfinite(gpus)]) if len(gpus) else [None]:
            own = columns if gpu is None else {k: v[gpus == gpu] for k, v in columns.items()}
            name = "" if gpu is None else f"GPU {gpu:.0f}"
            if mode + name not in self._streams:
                self._streams[mode + name] = Stream(name=name, mode=mode)
                self._read.streams.append(self._streams[mode + name])
            self._streams[mode + name].add(own)


def _key_role(key: str) -> tuple[str, float] | None:
    # An export of a tracker names the run first: "brave-fox-12 - train/loss".
    key = key.rsplit(" - ", 1)[-1]
    if key.endswith(("__MIN", "__MAX")) or (evaluating(key) and not key.endswith("runtime")):
        return None
    found = role_of(key, "")
    return None if found is None or found[0].startswith("stage:") else found


def _value(value: Any, role: str) -> float:
    """A number, or a text that holds one; NaN for everything else."""
    try:
        return float(value)
    except OverflowError:
        return float("inf")
    except (ValueError, TypeError):
        if not isinstance(value, str):
            return float("nan")
    if role == "clock" and ":" in value:
        return moment(value.encode())
    match = _NUMBER.match(value)
    return number_of(match[1].encode()) if match else float("nan")


def _batches(path: Path, read: Read) -> Iterator[list[tuple[int, str]]]:
    """Lines with their numbers, chunk by chunk."""
    for chunk in chunks(path, read.damage):
        lines = enumerate(chunk.raw[1:].split(b"\n"), chunk.first_line)
        yield [(n, line.decode("utf-8", "replace").replace("\r", "")) for n, line in lines if line.strip()]


def read_jsonl(path: Path, read: Read) -> Read:
    """One JSON object per line; lines that are none are counted as skipped."""
    rows = _Rows(read)
    for lines in _batches(path, read):
        records: list[tuple[int, Record]] = []
        for number, text in lines:
            try:
                record = _DECODER.decode(text)
            except (ValueError, RecursionError):
                read.damage.skipped += 1
                continue
            if isinstance(record, dict):
                records.append((number, record))
        rows.add(records)
    return read


def read_json(path: Path, read: Read) -> Read:
    """One JSON document with a list of records in it: ``trainer_state.json`` and the like."""
    text = b"".join(chunk.raw[1:] for chunk in chunks(path, read.damage))
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        read.damage.skipped += 1
        read.damage.note("no valid JSON")
        return read
    _Rows(read).add(list(enumerate(_records(document), 1)))
    return read


def _records(document: Any) -> Iterable[dict[str, Any]]:
    candidates: list[Any] = [document]
    if isinstance(document, dict):
        candidates = [document.get("log_history"), *document.values()]
    for found in candidates:
        if isinstance(found, list) and found and all(isinstance(item, dict) for item in found[:10]):
            return [item for item in found if isinstance(item, dict)]
    return []


def read_csv(path: Path, read: Read) -> Read:
    """A table with a header: Lightning's metrics.csv, Ultralytics' results.csv, exports, nvidia-smi."""
    header: list[str] = []
    delimiter = ","
    rows = _Rows(read)
    for lines in _batches(path, read):
        if not header and lines:
            first = lines.pop(0)[1]
            delimiter = max(",;\t", key=first.count)
            header = [name.strip() for name in next(csv.reader([first], delimiter=delimiter), [])]
            if any(name.startswith(("utilization.gpu", "power.draw", "memory.used")) for name in header):
                header = ["gpu index" if name == "index" else name for name in header]  # nvidia-smi's
        table: list[tuple[int, Record]] = []
        for number, text in lines:
            cells = (
                text.split(delimiter) if '"' not in text else next(csv.reader([text], delimiter=delimiter))
            )
            if len(cells) != len(header):
                read.damage.skipped += 1
            elif cells[0] != header[0]:
                table.append((number, dict(zip(header, cells, strict=True))))
        rows.add(table)
    return read


def read_events(path: Path, read: Read) -> Read:
    """TensorBoard's event files: what is written at one step is one record."""
    rows, records = _Rows(read), list[tuple[int, Record]]()
    for number, wall_s, step, values in events(path, read.damage):
        if records and records[-1][1]["step"] == step and not records[-1][1].keys() & values:
            records[-1] = records[-1][0], {**records[-1][1], **values}
            continue
        if len(records) >= _BATCH:
            rows.add(records)
            records = []
        records.append((number, {"step": step, "timestamp": wall_s, **values}))
    rows.add(records)
    return read


# Tables of system tools


_IOSTAT: Final = {"%util": ("disk_util", 0.01), "await": ("await", 0.001), "r_await": ("read_await", 0.001),
    "w_await": ("write_await", 0.001)}  # fmt: skip
_DMON: Final = {"sm": ("gpu_util", 0.01), "pwr": ("power", 1.0), "gtemp": ("temperature", 1.0),
    "fb": ("device_bytes", 2.0**20)}  # fmt: skip
#: The head of each kind of table, what the file is called, its columns, and the name of a row.
_HEADS: Final = (
    (re.compile(rb"(?m)^Device:? .*%util\s*$"), "iostat -x", _IOSTAT, "{}"),
    (re.compile(rb"(?m)^# *gpu .*\bsm\b"), "nvidia-smi dmon", _DMON, "GPU {}"),
)


def table_kind(text: bytes) -> str | None:
    """Which tool's table a text begins with."""
    return next((name for head, name, _, _ in _HEADS if head.search(text)), None)


def read_table(path: Path, read: Read) -> Read:
    """One stream per device; the first report of ``iostat`` is over the time since the boot, no sample."""
    streams: dict[str, Stream] = {}
    names: list[bytes] = []
    form, reports = _HEADS[0], 0
    for chunk in chunks(path, read.damage):
        for number, line in enumerate(chunk.body[1:].split(b"\n"), chunk.first_line):
            heads = [one for one in _HEADS if one[0].match(line)]
            cells = line.lstrip(b"# ").split()
            if heads:
                form, names, reports = heads[0], cells, reports + 1
            elif names and len(cells) == len(names) and not line.startswith(b"#") and len(streams) < 256:
                if form[1] == "iostat -x" and reports == 1:
                    continue
                name = form[3].format(cells[0].decode("utf-8", "replace")[:40])
                known = [(form[2][key.decode()], cell) for key, cell in zip(names, cells, strict=True)
                         if key.decode("ascii", "replace") in form[2]]  # fmt: skip
                # A dash is no number; a decimal comma is one.
                row = {
                    role: np.array([number_of(cell.replace(b",", b".")) * factor])
                    for (role, factor), cell in known
                }
                streams.setdefault(name, Stream(name=name)).add({**row, "line": np.array([float(number)])})
    read.streams = list(streams.values())
    return read
