"""A loader built anew every epoch is one loader: same place in source, same arguments, same dataset."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hotloop.record import rows as row
from hotloop.record.recording import Note, Process

#: Notes that name a loader by its id.
_NAMING = ("iterator", "batch", "unread", "worker_stat", "leaves")
#: What may differ between two constructions of the same loader.
_OF_THE_OBJECT = frozenset(("note", "t", "id"))


def merge_rebuilt(process: Process) -> Process:
    """The process with every loader of one construction site under the id of the first one alike."""
    first_id = _first_ids(process.notes.get("loader", ()))
    if all(number == first for number, first in first_id.items()):
        return process
    return replace(
        process,
        rows=_rows(process, first_id),
        notes=_notes(process.notes, first_id),
        workers=tuple(replace(w, notes=_notes(w.notes, first_id)) for w in process.workers),
    )


def _first_ids(notes: Any) -> dict[int, int]:
    seen: dict[str, int] = {}
    first: dict[int, int] = {}
    for note in notes:
        number = note.get("id")
        if isinstance(number, int):
            alike = {k: v for k, v in note.items() if k not in _OF_THE_OBJECT}
            key = json.dumps(alike, sort_keys=True, default=str) if note.get("where") else f"id {number}"
            first[number] = seen.setdefault(key, number)
    return first


def _rows(process: Process, first_id: Mapping[int, int]) -> Any:
    rows = process.rows.copy()
    for column, kinds in (("value", (row.ITER,)), ("obj", (row.ORDER, row.CONTENT))):
        at = np.flatnonzero(np.isin(rows["kind"], kinds))
        rows[column][at] = [first_id.get(int(v), int(v)) for v in rows[column][at]]
    return rows


def _notes(notes: Mapping[str, list[Note]], first_id: Mapping[int, int]) -> dict[str, list[Note]]:
    changed = dict(notes)
    for kind in _NAMING:
        if kind in changed:
            changed[kind] = [
                {**note, "loader": first_id.get(note["loader"], note["loader"])}
                if note.get("loader")
                else note
                for note in changed[kind]
            ]
    if "loader" in changed:
        changed["loader"] = [
            n for n in changed["loader"] if first_id.get(n.get("id", 0), n.get("id")) == n.get("id")
        ]
    return changed
