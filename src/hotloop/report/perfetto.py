"""The recording as a Chrome trace for ui.perfetto.dev: steps, spans with their lines, workers, samples."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from hotloop.measure.steps import Steps
from hotloop.record.publish import whole_file
from hotloop.record.recording import Process, Recording
from hotloop.report import tracks, words
from hotloop.report.tracks import Event
from hotloop.report.window import kept_rows, kept_steps

#: A trace of this many events is about 40 MB of text and opens in a few seconds.
MAX_EVENTS: Final = 250_000

#: Thread ids inside a process, in the order they are shown.
_STEPS, _PAUSES, _SPANS, _SAMPLES = 1, 2, 3, 4


def write(recording: Recording, ranks: Sequence[Steps], path: Path) -> None:
    """Write the trace, compressed where the name ends in ``.gz``.

    Long runs keep their first, last and slowest steps.
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
    for order, process in enumerate(recording.ranks):
        yield from _main(recording, process, by_pid.get(process.pid), budget, order)
        for index, worker in enumerate(process.workers):
            yield from _worker(recording, worker, index, budget, order)
    yield from tracks.system(recording)


def _main(
    recording: Recording, process: Process, steps: Steps | None, budget: int, order: int
) -> Iterator[Event]:
    yield from _names(
        process,
        f"rank {process.rank}",
        order * 1000,
        {
            _STEPS: "steps",
            _PAUSES: "evaluation and checkpoints",
            _SPANS: "training thread",
            _SAMPLES: "stack samples",
        },
    )
    kept = kept_steps(steps, budget, len(process.rows))
    rows = process.rows[kept_rows(process, steps, kept, budget)]
    if steps is not None:
        yield from tracks.steps(recording, process, steps, kept, _STEPS)
        yield from tracks.pauses(recording, process, steps, _PAUSES)
    yield from tracks.spans(recording, process, rows, _SPANS)
    yield from tracks.samples(recording, process, rows, _SAMPLES)
    yield from tracks.counters(recording, process, rows)


def _worker(recording: Recording, worker: Process, index: int, budget: int, order: int) -> Iterator[Event]:
    yield from _names(
        worker,
        f"rank {worker.rank} worker {index}",
        order * 1000 + index + 1,
        {_SPANS: "batches", _SAMPLES: "stack samples"},
    )
    rows = worker.rows[kept_rows(worker, None, np.zeros(0, np.int64), budget)]
    yield from tracks.spans(recording, worker, rows, _SPANS)
    yield from tracks.samples(recording, worker, rows, _SAMPLES)


def _names(process: Process, name: str, order: int, threads: Mapping[int, str]) -> Iterable[Event]:
    yield {"ph": "M", "name": "process_name", "pid": process.pid, "tid": 0, "args": {"name": name}}
    yield {
        "ph": "M",
        "name": "process_sort_index",
        "pid": process.pid,
        "tid": 0,
        "args": {"sort_index": order},
    }
    for tid, title in threads.items():
        yield {"ph": "M", "name": "thread_name", "pid": process.pid, "tid": tid, "args": {"name": title}}
        yield {
            "ph": "M",
            "name": "thread_sort_index",
            "pid": process.pid,
            "tid": tid,
            "args": {"sort_index": tid},
        }


def _text(event: Mapping[str, Any]) -> str:
    return json.dumps(event, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
