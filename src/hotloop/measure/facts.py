"""What the notes say about the run, merged into one dictionary.

Keys (a missing note leaves its key out, lists may be empty):

``torch`` the flags (of the first step, overlaid by those at exit) · ``anomaly`` · ``modules`` ·
``optimizers`` · ``autocast`` · ``compile`` · ``ddp`` · ``memory`` (last) · ``profile`` · ``exit`` ·
``disabled`` · ``warnings`` · ``accelerator`` whether the model or its batches were on one ·
``checkpoint_read`` whether it read one · ``world_size`` · ``rank`` · ``argv`` · ``python`` · ``env`` ·
``process`` the whole process note.
"""

from __future__ import annotations

from typing import Any

from hotloop.measure.spans import Spans
from hotloop.record import rows as row
from hotloop.record.recording import Note, Process

_READ = 3  # ``obj`` of a SAVE row
HOST_DEVICES = ("cpu", "meta")


def facts_of(process: Process, spans: Spans) -> dict[str, Any]:
    """The merged facts of one process."""
    first = process.first("process")
    facts: dict[str, Any] = {
        "process": _plain(first),
        "modules": [_plain(note) for note in process.notes.get("module", ())],
        "optimizers": [_plain(note) for note in process.notes.get("optimizer", ())],
        "disabled": [_plain(note) for note in process.notes.get("disabled", ())],
        "warnings": [str(note.get("text", "")) for note in process.notes.get("warning", ())],
        "accelerator": _on_accelerator(process, spans),
        "rank": process.rank,
        "checkpoint_read": bool(((spans.kind == row.SAVE) & (spans.obj == _READ)).any()),
    }
    for key in ("world_size", "argv", "python", "env", "cwd", "local_rank"):
        if key in first:
            facts[key] = first[key]
    for kind in ("torch", "anomaly", "autocast", "compile", "ddp", "memory", "profile", "exit"):
        merged: Note = {}
        for note in process.notes.get(kind, ()):
            merged.update({k: v for k, v in _plain(note).items() if v is not None})
        if merged:
            facts[kind] = merged
    return facts


def _plain(note: Note) -> Note:
    return {key: value for key, value in note.items() if key != "note"}


def _on_accelerator(process: Process, spans: Spans) -> bool:
    """Whether a module lived on an accelerator, or tensors were shipped to one."""
    for note in process.notes.get("module", ()):
        devices = note.get("devices")
        names = devices if isinstance(devices, list | tuple | dict) else [devices] if devices else []
        if any(not str(name).startswith(HOST_DEVICES) for name in names):
            return True
    return bool(((spans.kind == row.TRANSFER) & (spans.obj == 1)).any())
