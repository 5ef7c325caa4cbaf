"""Every rank of a run measured; those of a large run on all cores at once, with what was measured on disk."""

from __future__ import annotations

import mmap
import multiprocessing
import os
import pickle
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import Any, Final

from hotloop.launch.machine import usable_cores
from hotloop.measure import measure
from hotloop.measure.steps import Steps
from hotloop.record.recording import Process

#: Fewer rows are measured before other processes have begun.
_MANY_ROWS: Final = 1 << 20

_ranks: Sequence[Process] = ()
#: Where the next child writes in the file that they share.
_end: Any = None


def measured_ranks(ranks: Sequence[Process], got: Mapping[int, float]) -> list[Steps]:
    """The Steps of each. Children are forked, and find the rows in the memory that they share with this
    process, or on disk; where it has threads, or one of them dies, it measures by itself.

    The columns of all ranks lie in one file without a name: memory holds what is read of them.
    """
    count = min(len(ranks), int(usable_cores()))
    rows = sum(process.num_rows for process in ranks)
    if count > 1 and rows >= _MANY_ROWS and threading.active_count() == 1:
        context = multiprocessing.get_context("fork")
        try:
            with tempfile.TemporaryFile() as file:
                begin = (ranks, context.Value("q", 0))
                with ProcessPoolExecutor(count, context, _begin, begin) as pool:
                    one = partial(_measured, got=dict(got), file=file.fileno())
                    told = list(pool.map(one, range(len(ranks))))
                columns = memoryview(mmap.mmap(file.fileno(), 0))
            return [_steps(data, places, columns) for data, places in told]
        except (OSError, BrokenProcessPool):
            pass
    return [measure(process.loaded(), got=got) for process in ranks]


def _begin(ranks: Sequence[Process], end: Any) -> None:
    global _ranks, _end
    _ranks, _end = ranks, end


def _measured(number: int, got: Mapping[int, float], file: int) -> tuple[bytes, list[tuple[int, int]]]:
    """A rank's Steps without its columns, and where these lie in the file."""
    columns: list[pickle.PickleBuffer] = []
    steps = measure(_ranks[number].loaded(), got=got)
    data = pickle.dumps(steps, protocol=5, buffer_callback=columns.append)
    views = [column.raw() for column in columns]
    with _end.get_lock():
        at = _end.value
        _end.value += sum(-len(view) % 64 + len(view) for view in views)
    places = []
    for view in views:
        os.posix_fallocate(file, at, max(1, len(view)))  # a full disk is an error here, and a signal later
        os.pwrite(file, view, at)
        places.append((at, len(view)))
        at += -len(view) % 64 + len(view)
    return data, places


def _steps(data: bytes, places: Sequence[tuple[int, int]], columns: memoryview) -> Steps:
    steps: Steps = pickle.loads(data, buffers=[columns[at : at + size] for at, size in places])  # nosec B301
    return steps
