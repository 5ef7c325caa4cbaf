"""A loader built anew every epoch is one loader: same place in source, same arguments, same dataset.

Its dataset may have another length each time (a curriculum, a pool that grows), where one loader is done with
before the next is built.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby, pairwise
from math import inf
from typing import Any

import numpy as np

from hotloop.record import rows as row
from hotloop.record.recording import Note, Process

#: Notes that name a loader by its id.
_NAMING = ("iterator", "batch", "unread", "worker_stat", "leaves", "dataset_changed", "dataset_written")
#: What may differ between two constructions of the same loader, and of its dataset with the length.
_OF_THE_OBJECT = frozenset(("note", "t", "id", "dataset"))
_OF_THE_LENGTH = frozenset(("len", "bytes"))
#: Fewer lengths may be those of parts (training, validation) that one line builds loaders for in turn.
_LEAST_LENGTHS = 3


def merge_rebuilt(process: Process) -> Process:
    """The process with every loader of one construction site under the id of the first one alike."""
    first_id = _first_ids(process.notes)
    if all(number == first for number, first in first_id.items()):
        return process
    return replace(
        process,
        rows=_rows(process, first_id),
        notes=_notes(process.notes, first_id),
        workers=tuple(replace(w, notes=_notes(w.notes, first_id)) for w in process.workers),
    )


def _first_ids(notes: Mapping[str, list[Note]]) -> dict[int, int]:
    """By id the first loader alike: over the same dataset, or over ones of other lengths used in turn."""
    alike: dict[str, list[Note]] = {}
    for note in notes.get("loader", ()):
        if note.get("where") and isinstance(note.get("id"), int):
            same = [{k: v for k, v in note.items() if k not in _OF_THE_OBJECT}]
            same.append({k: v for k, v in _dataset(note).items() if k not in _OF_THE_LENGTH})
            alike.setdefault(json.dumps(same, sort_keys=True, default=str), []).append(note)
    asked: dict[int, list[float]] = {}
    for note in notes.get("iterator", ()):
        asked.setdefault(note.get("loader") or 0, []).append(note.get("t") or 0)
    first: dict[int, int] = {}
    for group in alike.values():
        lengths = [length for length, _ in groupby(map(_length, group))]
        # A length that comes again is another part's turn; one is done with before the next is built.
        apart = None not in lengths and len(set(lengths)) == len(lengths) >= _LEAST_LENGTHS
        done = (max(asked.get(a["id"], [inf])) < (b.get("t") or 0) for a, b in pairwise(group))
        in_turn = apart and all(done)
        seen: dict[Any, int] = {}
        for note in group:
            first[note["id"]] = seen.setdefault(None if in_turn else _length(note), note["id"])
    return first


def _dataset(loader: Note) -> Mapping[str, Any]:
    found = loader.get("dataset")
    return found if isinstance(found, dict) else {}


def _length(loader: Note) -> Any:
    return _dataset(loader).get("len")


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
