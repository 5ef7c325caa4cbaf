"""What the time before training went into."""

from __future__ import annotations

import re

import numpy as np

from hotloop.measure.attribution import WARM_UP_STEPS
from hotloop.measure.evaluation import Lives
from hotloop.measure.places import Places
from hotloop.measure.spans import Spans, Table, origin_ns
from hotloop.measure.stepping import Stepping
from hotloop.record import rows as row
from hotloop.record.recording import Process

IMPORT = re.compile(r"^\s*(import\s|from\s+\S+\s+import\b)|\bimport_module\(")


def startup_parts(
    process: Process,
    spans: Spans,
    lives: Lives,
    samples: Table,
    places: Places,
    stepping: Stepping,
    wall: int,
) -> dict[str, float]:
    """Seconds by part: "interpreter", "import torch", "other imports", "setup", "first batch", "compile".

    The first four add up to the time before the training span; the last two lie inside it.
    """
    ready = min(stepping.ready, wall)
    began, ended = _torch_import(process, ready)
    other = min(_other_imports(samples, places, ended, ready), ready - ended)
    parts = {
        "interpreter": began / 1e9,
        "import torch": (ended - began) / 1e9,
        "other imports": other / 1e9,
        "setup": (ready - ended - other) / 1e9,
    }
    if len(stepping):
        parts["first batch"] = _first_batch(spans, lives) / 1e9
        compiles = np.flatnonzero(spans.kind == row.COMPILE)
        step = stepping.of(spans.start[compiles])
        early = compiles[(step >= 0) & (step < WARM_UP_STEPS)]
        if len(early):
            parts["compile"] = float(spans.exclusive[early].sum()) / 1e9
    return parts


def _torch_import(process: Process, ready: int) -> tuple[int, int]:
    origin = origin_ns(process)
    for note in process.notes.get("import", ()):
        start, end = note.get("start_ns"), note.get("end_ns")
        if note.get("module") == "torch" and isinstance(start, int) and isinstance(end, int):
            began = min(max(start - origin, 0), ready)
            return began, min(max(end - origin, began), ready)
    return 0, 0


def _other_imports(samples: Table, places: Places, begin: int, end: int) -> int:
    """Sampled time in which something was being imported, torch's own lazy imports included."""
    total = 0
    for i in np.flatnonzero((samples.start >= begin) & (samples.start < end)):
        stack = places.stacks.get(int(samples.value[i]))
        if stack is not None and stack.frames:
            frame = stack.frames[-1]
            importing = any(entry.startswith("importlib._bootstrap") for entry in stack.library)
            if importing or IMPORT.search(places.text(frame.file, frame.line)):
                total += min(int(samples.duration[i]), int(samples.start[i]) - begin)
    return total


def _first_batch(spans: Spans, lives: Lives) -> int:
    """Starting the first training iterator and its first fetch (ns)."""
    training = np.flatnonzero(lives.trains)
    if not len(training):
        return 0
    first = np.flatnonzero((lives.of_row >= 0) & np.append(lives.trains, False)[lives.of_row])
    if not len(first):
        return 0
    mine = first[lives.of_row[first] == lives.of_row[first[0]]]
    starts = mine[spans.kind[mine] == row.ITER][:1]
    fetches = mine[spans.kind[mine] == row.FETCH][:1]
    return int(spans.duration[starts].sum() + spans.duration[fetches].sum())
