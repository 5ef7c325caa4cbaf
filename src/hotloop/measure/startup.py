"""What the time before training went into."""

from __future__ import annotations

import re

import numpy as np

from hotloop.measure.attribution import WARM_UP_STEPS
from hotloop.measure.passes import Lives
from hotloop.measure.places import Places, Stack
from hotloop.measure.spans import Spans, Table
from hotloop.measure.stepping import Seen
from hotloop.record import rows as row
from hotloop.record.recording import Process

IMPORT = re.compile(r"^\s*(?:import\s+([\w.]+)|from\s+(\S+)\s+import\b)|\bimport_module\(")

#: The part that is no start-up by phase: the training span begins when it is asked for.
IN_TRAINING = "first batch"
#: The script's own work.
SETUP = "setup"

#: Imports are told by name from this share of all imports besides torch's own, and this many nanoseconds.
TOLD_RATIO = 0.2
TOLD_NS = 500_000_000


def startup_parts(
    process: Process, seen: Seen, samples: Table, places: Places, wall: int
) -> dict[str, float]:
    """Seconds by part: "interpreter", "import torch", "import NAME" and "lazy imports of NAME" that take
    long, "other imports", "setup", "first batch", "compile".

    With "compile" they add up to the phase "startup"; the "first batch" (``IN_TRAINING``) is inside the span.
    """
    spans, stepping = seen.spans, seen.stepping
    ready = min(stepping.ready, wall)
    began, ended = _torch_import(process, ready)
    imports = _other_imports(samples, places, ended, ready)
    total = sum(imports.values())
    told = {name: ns for name, ns in imports.items() if name and ns >= max(TOLD_NS, TOLD_RATIO * total)}
    parts = {
        "interpreter": began / 1e9,
        "import torch": (ended - began) / 1e9,
        **{name: ns / 1e9 for name, ns in told.items()},
        "other imports": (total - sum(told.values())) / 1e9,
        SETUP: (ready - ended - total) / 1e9,
    }
    if len(stepping):
        parts[IN_TRAINING] = _first_batch(spans, seen.lives) / 1e9
        compiles = np.flatnonzero(spans.kind == row.COMPILE)
        step = stepping.of(spans.start[compiles])
        early = compiles[(step >= 0) & (step < WARM_UP_STEPS)]
        if len(early):
            parts["compile"] = float(spans.exclusive[early].sum()) / 1e9
    return parts


def _torch_import(process: Process, ready: int) -> tuple[int, int]:
    origin = process.origin_ns
    for note in process.notes.get("import", ()):
        start, end = note.get("start_ns"), note.get("end_ns")
        if note.get("module") == "torch" and isinstance(start, int) and isinstance(end, int):
            began = min(max(start - origin, 0), ready)
            return began, min(max(end - origin, began), ready)
    return 0, 0


def _other_imports(samples: Table, places: Places, begin: int, end: int) -> dict[str, int]:
    """Sampled time (ns) in which something was being imported, by what it was; "" where that is not known."""
    found: dict[str, int] = {}
    for i in np.flatnonzero(samples.began(begin, end)):
        stack = places.stacks.get(int(samples.value[i]))
        name = _imported(stack, places) if stack is not None and stack.frames else None
        if name is not None:
            spent = min(int(samples.duration[i]), int(samples.start[i]) - begin)
            found[name] = found.get(name, 0) + spent
    return found


def _imported(stack: Stack, places: Places) -> str | None:
    """What is being imported at a stack: the user's import, or a library's own on first use; else None."""
    frame = stack.frames[-1]
    written = IMPORT.search(places.text(frame.file, frame.line))
    if written:
        package = (written[1] or written[2] or "").lstrip(".").split(".")[0]
        return f"import {package}" if package not in ("", "torch") else ""
    for at, entry in enumerate(stack.library):
        if entry.startswith("importlib._bootstrap"):
            above = (re.split("[.:]", caller)[0] for caller in reversed(stack.library[:at]))
            owner = next((name for name in above if name != "importlib"), "")  # import_module asks for others
            return f"lazy imports of {owner}" if owner else ""
    return None


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
