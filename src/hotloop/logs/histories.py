"""Histories as trackers keep them: JSON lines, JSON with a list of records, CSV; and nvidia-smi's tables."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from hotloop.logs.clocks import moment
from hotloop.logs.meanings import evaluating, role_of
from hotloop.logs.pauses import Piece
from hotloop.logs.reading import chunks
from hotloop.logs.shapes import number as number_of
from hotloop.logs.shapes import worth_reading
from hotloop.logs.streams import Floats, Stream
from hotloop.logs.text import Read, note_losses

_GPU_KEY: Final = re.compile(r"gpu[./](?:process[./])?\d+[./]gpu$")
_NUMBER: Final = re.compile(r"\s*([-+]?[\d.,]+(?:[eE][-+]?\d+)?)")
_DECODER: Final = json.JSONDecoder()
Role = tuple[str, float]
#: Key, role and factor of what is taken from records of one set of keys.
_Plan = tuple[tuple[str, str, float], ...]
Progress = Callable[[int], None] | None


class _Rows:
    """Hands columns to streams; one stream per mode and GPU."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._streams: dict[str, Stream] = {}
        self.stride = 1

    def add(self, columns: dict[str, Floats], mode: str = "train") -> None:
        """Rows of one batch, each of which stands for ``stride`` in the file."""
        roles = [role for role in columns if role not in ("line", "has_loss")]
        if not len(columns["line"]) or not worth_reading(roles):
            return
        note_losses(self._read, columns)
        starts = np.zeros(len(columns["line"]), dtype=np.int64)
        self._read.pauses.watch([Piece(mode=mode, starts=starts, columns=columns)], b"")
        gpus = columns.pop("gpu", np.zeros(0))
        for gpu in np.unique(gpus[np.isfinite(gpus)]) if len(gpus) else [None]:
            own = columns if gpu is None else {k: v[gpus == gpu] for k, v in columns.items()}
            name = "" if gpu is None else f"GPU {gpu:.0f}"
            key = mode + name
            if key not in self._streams:
                self._streams[key] = Stream(name=name, mode=mode)
                self._read.streams.append(self._streams[key])
            self._streams[key].add(own, self.stride)
        self.stride = min(stream.stride for stream in self._streams.values()) if self._streams else 1


def _batches(
    path: Path, read: Read, rows: _Rows, progress: Progress
) -> Iterator[tuple[list[int], list[bytes]]]:
    """Line numbers and lines, chunk by chunk; of a long file one line of so many, odd to any period in it."""
    for chunk in chunks(path, read.damage, progress):
        lines = chunk.raw[1:].split(b"\n")
        rows.stride = 1 if b"NaN" in chunk.raw or b"nan" in chunk.raw else rows.stride
        numbers = [i for i in range(0, len(lines), rows.stride) if lines[i].strip()]
        yield [chunk.first_line + i for i in numbers], [lines[i] for i in numbers]


def read_jsonl(path: Path, read: Read, progress: Progress = None) -> Read:
    """One JSON object per line; lines that are none are counted as skipped."""
    rows, roles = _Rows(read), _Roles()
    for numbers, lines in _batches(path, read, rows, progress):
        records = []
        for number, text in zip(numbers, lines, strict=True):
            try:
                record = _DECODER.decode(text.decode("utf-8", "replace"))
            except (ValueError, RecursionError):
                read.damage.skipped += 1
                continue
            if isinstance(record, dict):
                records.append((number, record))
        roles.hand_on(records, rows)
    return read


def read_json(path: Path, read: Read, progress: Progress = None) -> Read:
    """One JSON document with a list of records in it: ``trainer_state.json`` and the like."""
    text = b"".join(chunk.raw[1:] for chunk in chunks(path, read.damage, progress))
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        read.damage.skipped += 1
        read.damage.note("no valid JSON")
        return read
    _Roles().hand_on(list(enumerate(_records(document), 1)), _Rows(read))
    return read


def _records(document: Any) -> Iterable[dict[str, Any]]:
    candidates: list[Any] = [document]
    if isinstance(document, dict):
        candidates = [document.get("log_history"), *document.values()]
    for found in candidates:
        if isinstance(found, list) and found and all(isinstance(item, dict) for item in found[:10]):
            return [item for item in found if isinstance(item, dict)]
    return []


class _Roles:
    """Keys of records to roles, each set of keys looked up once."""

    def __init__(self) -> None:
        self._plans: dict[tuple[str, ...], _Plan] = {}

    def hand_on(self, records: list[tuple[int, dict[str, Any]]], rows: _Rows) -> None:
        """Records as columns, those of evaluation apart."""
        taken: dict[tuple[str, _Plan], list[tuple[Any, ...]]] = {}
        for number, record in records:
            if any(type(value) is dict for value in record.values()):
                record = _flat(record)
            keys = tuple(record)
            plan = self._plans.get(keys)
            if plan is None:
                if len(self._plans) > 10_000:
                    self._plans.clear()
                plan = self._plans[keys] = _plan(record)
            if plan:
                mode = str(record.get("mode", ""))
                taken.setdefault((mode, plan), []).append((number, *[record[key] for key, _, _ in plan]))
        parts: dict[str, list[dict[str, Floats]]] = {"train": [], "evaluation": []}
        for (mode, plan), values in taken.items():
            parts["evaluation" if evaluating(mode) else "train"].append(_columns(plan, values))
        for mode, columns in parts.items():
            if columns:
                rows.add(_joined(columns), mode)


def _columns(plan: _Plan, values: list[tuple[Any, ...]]) -> dict[str, Floats]:
    numbers, *rest = zip(*values, strict=True)
    columns = {"line": np.array(numbers, dtype=float)}
    for (_, role, factor), column in zip(plan, rest, strict=True):
        columns[role] = _values(column) * factor
        if role == "loss":
            columns["has_loss"] = np.ones(len(values))
    return columns


def _joined(parts: list[dict[str, Floats]]) -> dict[str, Floats]:
    """Columns of several sets of keys in the order of the file."""
    roles = dict.fromkeys(role for part in parts for role in part)
    order = np.argsort(np.concatenate([part["line"] for part in parts]), kind="stable")
    joined = {}
    for role in roles:
        empty = 0.0 if role == "has_loss" else np.nan
        joined[role] = np.concatenate([part.get(role, np.full(len(part["line"]), empty)) for part in parts])[
            order
        ]
    return joined


def _flat(record: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in record.items():
        flat |= (
            {f"{key}/{inner}": more for inner, more in value.items()}
            if isinstance(value, dict)
            else {key: value}
        )
    return flat


def _plan(record: dict[str, Any]) -> _Plan:
    """Key, role and factor of what is worth taking; nothing of a record that holds evaluation only."""
    plan: dict[str, tuple[str, str, float]] = {}
    for key in record:
        found = _key_role(key)
        if found is not None:
            plan.setdefault(found[0], (key, *found))
    alone = set(plan) <= {"step", "epoch", "clock", "elapsed", "lr"}
    return () if alone and any(evaluating(key) for key in record) else tuple(plan.values())


def _key_role(key: str) -> Role | None:
    if _GPU_KEY.search(key):
        return "gpu_util", 0.01
    if evaluating(key) and not key.endswith("runtime"):
        return None
    found = role_of(key, "")
    return None if found is None or found[0].startswith("stage:") else found


def read_csv(path: Path, read: Read, progress: Progress = None) -> Read:
    """A table with a header: Lightning's metrics.csv, Ultralytics' results.csv, exports, nvidia-smi."""
    header: list[str] = []
    roles: list[Role | None] = []
    delimiter = ","
    rows = _Rows(read)
    for numbers, lines in _batches(path, read, rows, progress):
        texts = [line.decode("utf-8", "replace").replace("\r", "") for line in lines]
        if not header and texts:
            delimiter = max(",;\t", key=texts[0].count)
            header = [name.strip() for name in next(csv.reader(texts[:1], delimiter=delimiter), [])]
            roles = [_csv_role(name) for name in header]
            if any(
                name.startswith(("utilization.gpu", "power.draw", "memory.used")) for name in header
            ):  # nvidia-smi's
                roles = [
                    ("gpu", 1.0) if name == "index" else role
                    for name, role in zip(header, roles, strict=True)
                ]
            texts, numbers = texts[1:], numbers[1:]
        cells = [row for row in _parsed(texts, numbers, delimiter, read) if row[1] != header]
        whole = [row for row in cells if len(row[1]) == len(header)]
        read.damage.skipped += len(cells) - len(whole)
        if whole:
            rows.add(_table(whole, roles))
    return read


def _parsed(
    texts: list[str], numbers: list[int], delimiter: str, read: Read
) -> Iterator[tuple[int, list[str]]]:
    """Cells of each line; a line is a record (no line breaks in cells)."""
    for number, text in zip(numbers, texts, strict=True):
        try:
            yield (
                number,
                text.split(delimiter) if '"' not in text else next(csv.reader([text], delimiter=delimiter)),
            )
        except (csv.Error, StopIteration):
            read.damage.skipped += 1


def _table(rows: list[tuple[int, list[str]]], roles: Sequence[Role | None]) -> dict[str, Floats]:
    columns: dict[str, Floats] = {}
    for cells, found in zip(zip(*(row for _, row in rows), strict=True), roles, strict=True):
        if found is None or found[0] in columns:
            continue
        role, factor = found
        if role == "clock" and any(":" in cell for cell in cells[:10]):
            columns[role] = np.array([moment(cell.encode()) for cell in cells])
        else:
            columns[role] = _values(cells) * factor
        if role == "loss":
            columns["has_loss"] = np.array([1.0 if cell.strip() else 0.0 for cell in cells])
    columns["line"] = np.array([number for number, _ in rows], dtype=float)
    if "power" in columns and "power_limit" in columns:
        with np.errstate(divide="ignore", invalid="ignore"):
            columns["power_ratio"] = columns["power"] / columns["power_limit"]
    return columns


def _values(cells: Sequence[Any]) -> Floats:
    """Numbers, and texts that hold one; NaN for everything else."""
    try:
        return np.fromiter(map(float, cells), np.float64, len(cells))
    except (ValueError, TypeError, OverflowError):
        return np.array([_cell(cell) for cell in cells])


def _csv_role(name: str) -> Role | None:
    # An export of a tracker names the run first: "brave-fox-12 - train/loss".
    key = name.rsplit(" - ", 1)[-1]
    if key.endswith(("__MIN", "__MAX")):
        return None
    return _key_role(key)


def _cell(cell: Any) -> float:
    try:
        return float(cell)
    except OverflowError:
        return float("inf")
    except (ValueError, TypeError):
        match = _NUMBER.match(cell) if isinstance(cell, str) else None
        return number_of(match[1].encode()) if match else float("nan")
