"""Histories as trackers keep them: JSON lines, JSON with a list of records, CSV; and nvidia-smi's tables."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from hotloop.logs.clocks import CLOCK, Clock
from hotloop.logs.meanings import evaluating, role_of
from hotloop.logs.pauses import Piece
from hotloop.logs.reading import chunks
from hotloop.logs.streams import Stream
from hotloop.logs.templates import Floats, worth_reading
from hotloop.logs.text import Read, note_losses

_GPU_KEY: Final = re.compile(r"gpu[./](?:process[./])?\d+[./]gpu$")
_NUMBER: Final = re.compile(r"\s*([-+]?[\d.]+(?:[eE][-+]?\d+)?)")
_CLOCK: Final = re.compile(CLOCK)
_SMI: Final = {
    "utilization.gpu": ("gpu_util", 0.01), "memory.used": ("device_bytes", 2.0**20),
    "memory.total": ("device_limit", 2.0**20), "power.draw": ("power", 1.0), "power.limit": ("power_limit", 1.0),
    "timestamp": ("clock", 1.0), "temperature.gpu": ("temperature", 1.0), "index": ("gpu", 1.0),
    "enforced.power.limit": ("power_limit", 1.0), "power.draw.average": ("power", 1.0),
}  # fmt: skip
_DMON: Final = {
    "gpu": ("gpu", 1.0), "pwr": ("power", 1.0), "sm": ("gpu_util", 0.01), "fb": ("device_bytes", 2.0**20),
    "gtemp": ("temperature", 1.0), "Time": ("clock", 1.0),
}  # fmt: skip
#: Records read at a time.
_BATCH: Final = 20_000

Role = tuple[str, float]
Progress = Callable[[int], None] | None


class _Rows:
    """Collects records by role and hands them to streams in batches."""

    def __init__(self, read: Read, *, always: bool = False) -> None:
        self._read, self._always = read, always
        self._rows: dict[str, list[tuple[int, dict[str, float]]]] = {}
        self._streams: dict[str, Stream] = {}

    def add(self, line: int, row: dict[str, float], mode: str = "train") -> None:
        rows = self._rows.setdefault(mode, [])
        rows.append((line, row))
        if len(rows) >= _BATCH:
            self.flush(mode)

    def flush(self, mode: str) -> None:
        rows = self._rows.pop(mode, [])
        roles = list(dict.fromkeys(role for _, row in rows for role in row))
        if not rows or not (self._always or worth_reading(roles)):
            return
        columns = {role: np.array([row.get(role, np.nan) for _, row in rows], dtype=float) for role in roles}
        columns["line"] = np.array([line for line, _ in rows], dtype=float)
        if "loss" in columns:
            columns["has_loss"] = np.array(["loss" in row for _, row in rows], dtype=float)
            note_losses(self._read, columns)
        self._read.pauses.watch(
            [Piece(mode=mode, starts=np.zeros(len(rows), dtype=np.int64), columns=columns)], b""
        )
        gpus = columns.pop("gpu", None)
        for gpu in [None] if gpus is None else np.unique(gpus[np.isfinite(gpus)]):
            own = columns if gpu is None or gpus is None else {k: v[gpus == gpu] for k, v in columns.items()}
            name = "" if gpu is None else f"GPU {gpu:.0f}"
            key = mode + name
            if key not in self._streams:
                self._streams[key] = Stream(name=name, mode=mode)
                self._read.streams.append(self._streams[key])
            self._streams[key].add(own)

    def done(self) -> Read:
        for mode in list(self._rows):
            self.flush(mode)
        return self._read


def _lines(path: Path, read: Read, progress: Progress) -> Iterator[tuple[int, bytes]]:
    for chunk in chunks(path, read.damage, progress):
        for i, line in enumerate(chunk.raw[1:].split(b"\n")):
            if line.strip():
                yield chunk.first_line + i, line


def read_jsonl(path: Path, read: Read, progress: Progress = None) -> Read:
    """One JSON object per line; lines that are none are counted as skipped."""
    rows, roles = _Rows(read), _Roles()
    for line, text in _lines(path, read, progress):
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            read.damage.skipped += 1
            continue
        if isinstance(record, dict):
            roles.take(rows, line, record)
    return rows.done()


def read_json(path: Path, read: Read, progress: Progress = None) -> Read:
    """One JSON document with a list of records in it: ``trainer_state.json`` and the like."""
    rows, roles = _Rows(read), _Roles()
    text = b"".join(chunk.raw[1:] for chunk in chunks(path, read.damage, progress))
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        read.damage.skipped += 1
        read.damage.note("no valid JSON")
        return read
    for i, record in enumerate(_records(document)):
        roles.take(rows, i + 1, record)
    return rows.done()


def _records(document: Any) -> Iterable[dict[str, Any]]:
    candidates: list[Any] = [document]
    if isinstance(document, dict):
        candidates = [document.get("log_history"), *document.values()]
    for found in candidates:
        if isinstance(found, list) and found and all(isinstance(item, dict) for item in found[:10]):
            return [item for item in found if isinstance(item, dict)]
    return []


class _Roles:
    """Keys of records to roles, each key looked up once."""

    def __init__(self) -> None:
        self._known: dict[str, Role | None] = {}

    def take(self, rows: _Rows, line: int, record: dict[str, Any]) -> None:
        """Add one record."""
        row: dict[str, float] = {}
        for key, value in record.items():
            if isinstance(value, dict):
                for inner, more in value.items():
                    self._put(row, f"{key}/{inner}", more)
            else:
                self._put(row, key, value)
        if set(row) - {"step", "epoch", "clock", "elapsed", "lr"} or not rows_have_more(record):
            mode = str(record.get("mode", "train"))
            rows.add(line, row, "evaluation" if evaluating(mode) else "train")

    def _put(self, row: dict[str, float], key: str, value: Any) -> None:
        if not isinstance(value, int | float | str) or isinstance(value, bool):
            return
        if key not in self._known:
            self._known[key] = _key_role(key)
        found = self._known[key]
        if found is None or found[0] in row:
            return
        if isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                return
        row[found[0]] = float(value) * found[1] if abs(value) < 1e300 or value != value else float(value)


def rows_have_more(record: dict[str, Any]) -> bool:
    """Whether a record holds evaluation only: then its step is no step of training."""
    return any(evaluating(str(key)) for key in record)


def _key_role(key: str) -> Role | None:
    if _GPU_KEY.search(key):
        return "gpu_util", 0.01
    if evaluating(key) and not key.endswith("runtime"):
        return None
    found = role_of(key, "")
    return None if found is None or found[0].startswith("stage:") else found


def read_csv(path: Path, read: Read, progress: Progress = None) -> Read:
    """A table with a header: Lightning's metrics.csv, Ultralytics' results.csv, exports of trackers, nvidia-smi."""
    lines = _lines(path, read, progress)
    first = next(lines, None)
    if first is None:
        return read
    header_text = first[1].decode("utf-8", "replace").rstrip("\r")
    delimiter = max(",;\t", key=header_text.count)
    header = [name.strip().strip('"') for name in next(csv.reader([header_text], delimiter=delimiter))]
    smi = any(name.startswith(("utilization.gpu", "power.draw", "memory.used")) for name in header)
    roles = [_smi_role(name) if smi else _csv_role(name) for name in header]
    rows = _Rows(read, always=smi)
    clock = Clock()
    numbers: list[int] = []
    texts = (text.decode("utf-8", "replace").rstrip("\r") for _, text in _numbered(lines, numbers))
    reader = csv.reader(texts, delimiter=delimiter)
    while True:
        try:
            cells = next(reader, None)
        except csv.Error:
            read.damage.skipped += 1
            continue
        if cells is None:
            break
        if len(cells) != len(header):
            read.damage.skipped += 1
            continue
        if smi and cells[0].strip() == header[0]:
            continue
        _take_cells(rows, numbers[-1], cells, roles, clock)
    return rows.done()


def _numbered(lines: Iterator[tuple[int, bytes]], numbers: list[int]) -> Iterator[tuple[int, bytes]]:
    for line, text in lines:
        numbers[:] = [line]
        yield line, text


def _csv_role(name: str) -> Role | None:
    # An export of a tracker names the run first: "brave-fox-12 - train/loss".
    key = name.rsplit(" - ", 1)[-1]
    if key.endswith(("__MIN", "__MAX")):
        return None
    return _key_role(key)


def _smi_role(name: str) -> Role | None:
    return _SMI.get(name.split("[")[0].strip())


def _take_cells(
    rows: _Rows, line: int, cells: Sequence[str], roles: Sequence[Role | None], clock: Clock
) -> None:
    row: dict[str, float] = {}
    for cell, found in zip(cells, roles, strict=True):
        if found is None or not cell.strip():
            continue
        role, factor = found
        if role == "clock" and ":" in cell:
            match = _CLOCK.search(cell.encode())
            if match:
                row[role] = clock.seconds(match[1], match[2])
            continue
        value = _cell(cell)
        if value is not None:
            row[role] = value * factor
    _finish_smi(row)
    if row:
        rows.add(line, row)


def _finish_smi(row: dict[str, float]) -> None:
    if "power" in row and row.get("power_limit"):
        row["power_ratio"] = row["power"] / row["power_limit"]


def _cell(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        match = _NUMBER.match(text)
        try:
            return float(match[1]) if match else None
        except ValueError:
            return None


def read_dmon(path: Path, read: Read, progress: Progress = None) -> Read:
    """``nvidia-smi dmon``: columns named by lines that start with ``# gpu`` or ``#Time gpu``."""
    rows = _Rows(read, always=True)
    clock = Clock()
    roles: list[Role | None] = []
    for line, text in _lines(path, read, progress):
        words = text.decode("utf-8", "replace").split()
        if words[0].startswith("#"):
            names = words[1:] if words[0] == "#" else [words[0][1:], *words[1:]]
            if "gpu" in names:
                roles = [_DMON.get(name) for name in names]
            continue
        if len(words) != len(roles):
            read.damage.skipped += 1
            continue
        _take_cells(rows, line, words, roles, clock)
    return rows.done()


def column_means(read: Read, role: str) -> list[tuple[str, Floats]]:
    """The values of a role by stream name (one per GPU)."""
    found = [(stream.name, stream.get(role)) for stream in read.streams]
    return [(name, column[np.isfinite(column)]) for name, column in found if column is not None]
