"""The recording as a Chrome trace for ui.perfetto.dev: steps, spans with their lines, workers, samples."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hotloop.measure.steps import Steps
from hotloop.phases import PHASES
from hotloop.record import rows as r
from hotloop.record.recording import Process, Recording, durations_ns
from hotloop.report import words
from hotloop.report.words import clean

Event = dict[str, Any]
Rows = npt.NDArray[Any]

#: Kinds with an operation in ``obj``.
_OPERATIONS: Final[Mapping[int, tuple[str, ...]]] = {
    r.SYNC: r.SYNC_OPS,
    r.LOG: r.LOG_OPS,
    r.COLLECTIVE: r.COLLECTIVE_OPS,
}
#: Kinds that are no span of the thread.
NO_SPAN: Final = (r.SAMPLE, r.DEVICE, r.LOSS)

#: A trace of this many events is about 40 MB of text and opens in a few seconds.
MAX_EVENTS: Final = 250_000

#: Thread ids inside a process, in the order they are shown.
_STEPS, _SPANS, _SAMPLES = 1, 2, 3


def render(recording: Recording, ranks: Sequence[Steps], *, packed: bool = False) -> bytes:
    """The trace; of a long run the first and last rows, and all steps as far as there is room."""
    trace = {
        "displayTimeUnit": "ms",
        "otherData": {"command": words.command(recording.command), "tool": "hotloop"},
        "traceEvents": list(events(recording, ranks)),
    }
    data = json.dumps(trace, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    return gzip.compress(data, 5, mtime=0) if packed else data


def events(recording: Recording, ranks: Sequence[Steps], *, max_events: int = MAX_EVENTS) -> Iterator[Event]:
    """All events of the trace, at most about ``max_events``; microseconds since the command started."""
    num_processes = sum(1 + len(process.workers) for process in recording.ranks)
    budget = max_events // max(1, num_processes)
    by_pid = {steps.pid: steps for steps in ranks}
    for process in recording.ranks:
        yield from _process(recording, process, f"rank {process.rank}", budget, "training thread")
        if process.pid in by_pid:
            yield from _steps(recording, process, by_pid[process.pid], budget)
        for index, worker in enumerate(process.workers):
            yield from _process(recording, worker, f"rank {worker.rank} worker {index}", budget, "batches")


def _process(recording: Recording, process: Process, name: str, budget: int, spans: str) -> Iterator[Event]:
    threads = {_STEPS: "steps", _SPANS: spans, _SAMPLES: "stack samples"}
    yield {"ph": "M", "name": "process_name", "pid": process.pid, "tid": 0, "args": {"name": name}}
    for tid, title in threads.items():
        yield {"ph": "M", "name": "thread_name", "pid": process.pid, "tid": tid, "args": {"name": title}}
    rows, half = process.rows, max(1, budget // 4)
    if len(rows) > 2 * half:
        rows = np.concatenate([rows[:half], rows[-half:]])
    yield from _spans(recording, process, rows)
    yield from _samples(recording, process, rows)


def _steps(recording: Recording, process: Process, measured: Steps, most: int) -> Iterator[Event]:
    """One slice per step, its phases in the arguments; of more than ``most`` steps the slowest."""
    offset = (process.start_ns - recording.start_ns) / 1e3
    slowest = np.argsort(measured.start_s - measured.end_s, kind="stable")[: max(1, most)]
    for index in np.sort(slowest).tolist():
        start, end = float(measured.start_s[index]) * 1e6, float(measured.end_s[index]) * 1e6
        phases = {
            f"{name}_ms": round(float(seconds) * 1e3, 4)
            for name, seconds in zip(PHASES, measured.phases[index], strict=True)
            if seconds > 0
        }
        yield _slice(process.pid, _STEPS, f"step {index}", "step", start + offset, end + offset, phases)


def _spans(recording: Recording, process: Process, rows: Rows) -> Iterator[Event]:
    """One slice per span."""
    for row, start, end, _, name, arguments in nested(process, rows[~np.isin(rows["kind"], NO_SPAN)]):
        category = r.KIND_NAMES.get(int(row["kind"]), "?")
        since, until = ((at - recording.start_ns) / 1e3 for at in (start, end))
        yield _slice(process.pid, _SPANS, name, category, since, until, arguments)


def nested(process: Process, rows: Rows) -> Iterator[tuple[Any, int, int, int, str, Event]]:
    """(row, start, end, depth, what it is called, what is known of it) by start, properly nested: a child
    never ends after its parent, whatever rounding did.
    """
    lengths = durations_ns(rows)
    order = np.lexsort((-lengths, rows["start"]))
    places = {note.get("id"): note for note in process.notes.get("site", [])}
    modules = {note.get("id"): note for note in process.notes.get("name", [])}
    open_ends: list[int] = []
    for row, length in zip(rows[order], lengths[order].tolist(), strict=True):
        start = int(row["start"])
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
        end = min([start + length, *open_ends[-1:]])
        yield row, start, end, len(open_ends), *described(row, places, modules)
        open_ends.append(end)


def _samples(recording: Recording, process: Process, rows: Rows) -> Iterator[Event]:
    """One slice per run of equal stacks; a sample stands for the time since the one before it."""
    taken = rows[rows["kind"] == r.SAMPLE]
    if not len(taken):
        return
    weights = durations_ns(taken)
    ends = taken["start"].astype(np.int64)
    starts = np.maximum(ends - weights, np.concatenate([[0], ends[:-1]]))
    stacks = {note.get("id"): note for note in process.notes.get("stack", [])}
    same = (taken["value"][1:] == taken["value"][:-1]) & (starts[1:] - ends[:-1] < 1_000_000)
    firsts = np.flatnonzero(np.concatenate([[True], ~same]))
    lasts = np.concatenate([firsts[1:] - 1, [len(taken) - 1]])
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        name, arguments = _stack(stacks.get(int(taken["value"][first]), {}), last - first + 1)
        since, until = ((int(at) - recording.start_ns) / 1e3 for at in (starts[first], ends[last]))
        yield _slice(process.pid, _SAMPLES, name, "sample", since, until, arguments)


def described(row: Any, places: Mapping[Any, Any], modules: Mapping[Any, Any]) -> tuple[str, Event]:
    """What a row is called, and what is known of it: ``place``, ``samples``, ``bytes``."""
    kind, obj, value = int(row["kind"]), int(row["obj"]), int(row["value"])
    name = r.KIND_NAMES.get(kind, f"kind {kind}")
    arguments: Event = {}
    operations = _OPERATIONS.get(kind, ())
    if obj < len(operations):
        name = f"{name} {operations[obj]}"
    if kind == r.TRANSFER:
        name = {1: "transfer to device", 2: "transfer to host"}.get(obj, name)
        arguments["bytes"] = value
    elif kind == r.MODULE:
        direction = " backward" if int(row["flags"]) & r.MODULE_BACKWARD else ""
        name = clean(modules.get(obj, {}).get("name") or "(model)") + direction
    elif kind == r.MAKE:
        arguments = {"samples": int(row["extra"]), "bytes": value}
    elif kind == r.FETCH:
        arguments["samples"] = value
    elif kind == r.SLOWEST and value != r.U32_MAX:
        arguments["index"] = value
    place = places.get(int(row["site"]))
    if place:
        arguments["place"] = clean(f"{place.get('file')}:{place.get('line')}")
        arguments["function"] = clean(place.get("func", ""))
    return name, arguments


def _stack(note: Mapping[str, Any], count: int) -> tuple[str, Event]:
    frames = [frame for frame in note.get("frames") or () if len(frame) >= 3]
    if not frames:
        return "(no user frame)", {"samples": count}
    file, line, function = frames[-1][:3]
    stack = [clean(f"{frame[2]} ({frame[0]}:{frame[1]})") for frame in frames]
    name = clean(f"{function} {str(file).rsplit('/', 1)[-1]}:{line}")
    return name, {"samples": count, "stack": stack + [clean(item) for item in note.get("library") or ()]}


def _slice(pid: int, tid: int, name: str, category: str, start: float, end: float, arguments: Event) -> Event:
    """A slice between two times in microseconds, rounded to nanoseconds so that neighbours still meet."""
    ts = round(start, 3)
    length = round(max(0.0, round(end, 3) - ts), 3)
    event = {"ph": "X", "name": name, "cat": category, "pid": pid, "tid": tid, "ts": ts, "dur": length}
    return {**event, "args": arguments} if arguments else event
