"""Every rank of a run measured; those of a large run on all cores at once, with what was measured on disk."""

from __future__ import annotations

import mmap
import multiprocessing
import os
import pickle
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import Any, Final

import numpy as np

from hotloop.launch.machine import usable_cores
from hotloop.measure import measure
from hotloop.measure.steps import Steps
from hotloop.phases import PHASES
from hotloop.record.glimpse import glimpse
from hotloop.record.recording import Process
from hotloop.report.ranks import lead

#: Fewer rows are measured before other processes have begun.
_MANY_ROWS: Final = 1 << 20

#: All of so many ranks, or of so many rows, is measured.
_WHOLE_RANKS, _WHOLE_ROWS = 16, 1 << 24
#: Of larger runs, of each rank: stretches, and the rows of them together.
_STRETCHES, _GLIMPSE = 3, 3 << 13
#: Of those furthest from the usual so many, that are so far from it, in parts of a step.
_ODD, _ODD_RATIO = 8, 0.05

_ranks: Sequence[Process] = ()
_ready: Callable[[Process], Process] = Process.loaded
#: Where the next child writes in the file that they share.
_end: Any = None


def measured_ranks(ranks: Sequence[Process], got: Mapping[int, float]) -> list[Steps]:
    """The Steps of each. Of many long ones a few stretches are measured of each, and all rows of those only
    that these single out.
    """
    if len(ranks) <= _WHOLE_RANKS or sum(process.num_rows for process in ranks) <= _WHOLE_ROWS:
        return _measured(ranks, got, Process.loaded)
    found = _measured(ranks, got, partial(glimpse, count=_STRETCHES, most=_GLIMPSE))
    wanted = [at for at in _singled_out(found) if found[at].partly]
    while wanted:
        whole = _measured([ranks[at] for at in wanted], got, Process.loaded)
        for at, steps in zip(wanted, whole, strict=True):
            found[at] = steps
        main = lead(found)
        wanted = [at for at, steps in enumerate(found) if steps is main and steps.partly]
    return found


def _singled_out(found: Sequence[Steps]) -> set[int]:
    """The first rank; by their own work per step the fastest, the middle one and the slowest; odd ones."""
    table = np.array([[steps.per_step(name) for name in PHASES] for steps in found])
    own = [steps.own_s for steps in found]
    apart = np.abs(table - np.median(table, axis=0)).sum(axis=1)
    odd = np.argsort(apart)[-_ODD:]
    odd = odd[apart[odd] > _ODD_RATIO * np.median([steps.step_s for steps in found])]
    return {0, *np.argsort(own)[[0, len(own) // 2, -2, -1]].tolist(), *odd.tolist()}


def _measured(
    ranks: Sequence[Process], got: Mapping[int, float], ready: Callable[[Process], Process]
) -> list[Steps]:
    """The Steps of each, its rows made ready. Children are forked, and find the rows in the memory that they
    share with this process, or on disk; where it has threads, or one of them dies, it measures by itself.

    The columns of all ranks lie in one file without a name: memory holds what is read of them.
    """
    count = min(len(ranks), int(usable_cores()))
    rows = sum(process.num_rows for process in ranks)
    if count > 1 and rows >= _MANY_ROWS and threading.active_count() == 1:
        context = multiprocessing.get_context("fork")
        try:
            with tempfile.TemporaryFile() as file:
                begin = (ranks, ready, context.Value("q", 0))
                with ProcessPoolExecutor(count, context, _begin, begin) as pool:
                    one = partial(_one, got=dict(got), file=file.fileno())
                    told = list(pool.map(one, range(len(ranks))))
                columns = memoryview(mmap.mmap(file.fileno(), 0))
            return [_steps(data, places, columns) for data, places in told]
        except (OSError, BrokenProcessPool):
            pass
    return [measure(ready(process), got=got) for process in ranks]


def _begin(ranks: Sequence[Process], ready: Callable[[Process], Process], end: Any) -> None:
    global _ranks, _ready, _end
    _ranks, _ready, _end = ranks, ready, end


def _one(number: int, got: Mapping[int, float], file: int) -> tuple[bytes, list[tuple[int, int]]]:
    """A rank's Steps without its columns, and where these lie in the file."""
    columns: list[pickle.PickleBuffer] = []
    steps = measure(_ready(_ranks[number]), got=got)
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
