"""A loader built anew every epoch is one loader: same place in source, same arguments, same dataset.

Its dataset may have another length each time (a fold of a cross-validation, a curriculum, a pool that grows),
where one loader is done with before the next is built.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby, pairwise
from typing import Any

import numpy as np

from hotloop.record import rows as row
from hotloop.record.recording import Note, Process

#: Notes that name a loader by its id.
_NAMING = (
    "iterator",
    "batch",
    "unread",
    "worker_stat",
    "leaves",
    "dataset_changed",
    "dataset_written",
)
#: What may differ between two constructions of the same loader.
_OF_THE_OBJECT = frozenset(("note", "t", "id"))
#: What of a dataset changes with its length.
_OF_THE_LENGTH = frozenset(("len", "bytes", "held"))  # held: of older recordings
#: Fewer lengths may be those of parts (training, validation) that one line builds loaders for in turn.
_LEAST_LENGTHS = 3
#: Lengths this close are those of folds, however few and often they come.
_OF_FOLDS = 1.1


def merge_rebuilt(process: Process) -> Process:
    """The process with every loader of one construction site under the id of the first one alike."""
    first_id = _first_ids(process.notes.get("loader", ()))
    first_id |= _of_changing_length(process.notes)
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


def _of_changing_length(notes: Mapping[str, list[Note]]) -> dict[int, int]:
    """Loaders that are alike but for their dataset's length and used in turn: the id of the first, by id."""
    alike: dict[str, list[Note]] = {}
    for note in notes.get("loader", ()):
        if note.get("where") and isinstance(note.get("id"), int) and isinstance(note.get("dataset"), dict):
            same = {k: v for k, v in note.items() if k not in _OF_THE_OBJECT}
            same["dataset"] = {k: v for k, v in note["dataset"].items() if k not in _OF_THE_LENGTH}
            alike.setdefault(json.dumps(same, sort_keys=True, default=str), []).append(note)
    asked: dict[int, list[int]] = {}
    for note in notes.get("iterator", ()):
        asked.setdefault(note.get("loader") or 0, []).append(note.get("t") or 0)
    joined: dict[int, int] = {}
    for group in alike.values():
        lengths = [length for length, _ in groupby(note["dataset"].get("len") for note in group)]
        if None in lengths:
            continue
        near = max(lengths) <= _OF_FOLDS * min(lengths)
        # A length that comes again is another part's turn.
        apart = len(set(lengths)) == len(lengths) >= _LEAST_LENGTHS
        if (near or apart) and all(_done_with(asked.get(a["id"], []), b) for a, b in pairwise(group)):
            joined |= {note["id"]: group[0]["id"] for note in group}
    return joined


def _done_with(asked: list[int], following: Note) -> bool:
    """Whether a loader was iterated, and for the last time before the following one was built."""
    return bool(asked) and max(asked) < (following.get("t") or 0)


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
        again = {first for number, first in first_id.items() if number != first}
        changed["loader"] = [
            {**n, "rebuilt": True} if n.get("id") in again else n
            for n in changed["loader"]
            if first_id.get(n.get("id", 0), n.get("id")) == n.get("id")
        ]
    return changed
