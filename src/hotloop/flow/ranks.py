"""Every rank of a run measured; those of a large run on all cores at once."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import Final

from hotloop.launch.machine import usable_cores
from hotloop.measure import measure
from hotloop.measure.steps import Steps
from hotloop.record.recording import Process

#: Fewer rows are measured before other processes have begun.
_MANY_ROWS: Final = 1 << 20

_ranks: Sequence[Process] = ()


def measured_ranks(ranks: Sequence[Process], got: Mapping[int, float]) -> list[Steps]:
    """The Steps of each. Children are forked, and find the rows in the memory that they share with this
    process; where it has threads, or one of them dies, it measures by itself.
    """
    count = min(len(ranks), int(usable_cores()))
    rows = sum(process.num_rows for process in ranks)
    if count > 1 and rows >= _MANY_ROWS and threading.active_count() == 1:
        context = multiprocessing.get_context("fork")
        try:
            with ProcessPoolExecutor(count, context, _begin, (ranks,)) as pool:
                return list(pool.map(partial(_measured, got=dict(got)), range(len(ranks))))
        except (OSError, BrokenProcessPool):
            pass
    return [measure(process.loaded(), got=got) for process in ranks]


def _begin(ranks: Sequence[Process]) -> None:
    global _ranks
    _ranks = ranks


def _measured(number: int, got: Mapping[int, float]) -> Steps:
    return measure(_ranks[number].loaded(), got=got)
