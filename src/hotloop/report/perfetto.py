"""The recording as a Chrome trace for ui.perfetto.dev: steps, spans with their lines, workers, samples."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from hotloop.measure.steps import Steps
from hotloop.record.publish import whole_file
from hotloop.record.recording import Process, Recording
from hotloop.report import tracks, words
from hotloop.report.tracks import Event

#: A trace of this many events is about 40 MB of text and opens in a few seconds.
MAX_EVENTS: Final = 250_000

#: Thread ids inside a process, in the order they are shown.
_STEPS, _SPANS, _SAMPLES = 1, 2, 3


def write(recording: Recording, ranks: Sequence[Steps], path: Path) -> None:
    """Write the trace, compressed where the name ends in ``.gz``.

    Long runs keep their first and last rows, and all their steps as far as there is room.
    Raises OSError where the file cannot be written.
    """
    head = {"command": words.command(recording.command), "tool": "hotloop"}
    text = ",\n".join(map(_text, events(recording, ranks)))
    with ExitStack() as stack:
        out: BinaryIO | gzip.GzipFile = stack.enter_context(whole_file(path))
        if path.suffix == ".gz":
            out = stack.enter_context(gzip.GzipFile("", "wb", 5, out))
        out.write(f'{{"displayTimeUnit":"ms","otherData":{json.dumps(head)},"traceEvents":[\n'.encode())
        out.write(text.encode())
        out.write(b"\n]}\n")


def events(recording: Recording, ranks: Sequence[Steps], *, max_events: int = MAX_EVENTS) -> Iterator[Event]:
    """All events of the trace, at most about ``max_events``; microseconds since the command started."""
    num_processes = sum(1 + len(process.workers) for process in recording.ranks)
    budget = max_events // max(1, num_processes)
    by_pid = {steps.pid: steps for steps in ranks}
    for process in recording.ranks:
        yield from _process(recording, process, f"rank {process.rank}", budget, "training thread")
        if process.pid in by_pid:
            yield from tracks.steps(recording, process, by_pid[process.pid], budget, _STEPS)
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
    yield from tracks.spans(recording, process, rows, _SPANS)
    yield from tracks.samples(recording, process, rows, _SAMPLES)


def _text(event: Mapping[str, Any]) -> str:
    return json.dumps(event, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
