"""Which format a file has, from its first bytes and lines, never from its name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

from hotloop.logs import tables
from hotloop.logs.reading import head
from hotloop.logs.tensorboard import is_events

#: Frameworks by what only their lines have; the first that fits names the log.
_FRAMEWORKS: Final = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("mmengine", rb"(?:Epoch|Iter)\(train\) +\["),
        ("mmcv", rb" - INFO - (?:Epoch|Iter) \["),
        ("detectron2", rb"d2\.utils\.events"),
        ("Megatron-LM", rb"elapsed time per iteration \(ms\)"),
        ("torchtitan", rb"\[titan\]|\btps: [\d,]+ .*\bmfu:"),
        ("fairseq", rb"\btrain_inner\b"),
        ("timm", rb"Train: \d+ \[ *\d+/\d+ \( *\d+%\)\]"),
        ("Ultralytics", rb"GPU_mem +\w+_loss|gpu_mem +box"),
        ("Lightning", rb"\bv_num=|LOCAL_RANK: \d+ - CUDA_VISIBLE"),
        ("Hugging Face Trainer", rb"\{'(?:loss|train_runtime|eval_loss)': "),
        ("nanoGPT", rb"iter \d+: loss [\d.naif]+, time"),
        ("MetricLogger (torchvision)", rb"eta: .* time: [\d.]+ +data: [\d.]+"),
        ("torch examples", rb"Epoch: \[\d+\]\[ *\d+/\d+\]\s+Time"),
        ("Swin", rb"Train: \[\d+/\d+\]\[\d+/\d+\]"),
        ("Paddle", rb"reader_cost"),
        ("Keras", rb"\d+/\d+ (?:\[[=>.]+\]|\xe2\x94\x81+) - "),
        ("tqdm", rb"\|[^|\n]*\| [\d.]+[kMG]?/[\d.]+[kMG]? \[\d+:\d\d"),
        ("key=value", rb"\b\w+=[-+\d.]+[ ,;\t]+\w+=[-+\d.]"),
    )
)


def kind_of(path: Path) -> str:
    """``text`` or one of the kinds of ``analyze``."""
    if is_events(path):
        return "TensorBoard events"
    text = head(path)
    lines = [line for line in text.splitlines()[:50] if line.strip()]
    if not lines:
        return "text"
    first = lines[0].lstrip()
    if first.startswith((b"{", b"[")):
        return _json_kind(lines) or "text"
    return tables.kind_of(text) or _table_kind(lines)


def _json_kind(lines: list[bytes]) -> str | None:
    objects = sum(1 for line in lines if _is_object(line))
    if objects and objects >= 0.5 * len(lines):
        return "JSON lines"
    first = lines[0].strip()
    opening = first in (b"{", b"[", b"[{") or re.match(rb'\{\s*"[^"]+"\s*:', first) or first.startswith(b"[{")
    return "JSON history" if opening else None


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _table_kind(lines: list[bytes]) -> str:
    header = lines[0]
    delimiter = max(b",", b";", b"\t", key=header.count)
    names = header.split(delimiter)
    if any(name.strip().startswith((b"utilization.gpu", b"power.draw", b"memory.used")) for name in names):
        return "nvidia-smi csv"
    if len(names) < 2 or any(_is_number(name) or re.search(rb"[:=]\s*\S", name) for name in names):
        return "text"
    rows = [line.split(delimiter) for line in lines[1:20]]
    fitting = [row for row in rows if len(row) == len(names) and sum(map(_is_cell, row)) >= 0.6 * len(names)]
    return "CSV history" if rows and len(fitting) >= 0.5 * len(rows) else "text"


def _is_number(text: bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_cell(text: bytes) -> bool:
    return not text.strip() or _is_number(text.strip(b' "\r').replace(b",", b".", 1))


def framework(text: bytes) -> str:
    """The framework whose lines these are, ``text`` where none is known."""
    return next((name for name, pattern in _FRAMEWORKS if pattern.search(text)), "text")
