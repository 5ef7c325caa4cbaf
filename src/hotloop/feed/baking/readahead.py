"""Reads from storage begun for a whole batch before the first of its rows is touched.

A row that is not in memory costs its reader a page fault, one after the other: 64 of them are 64 times the
latency of the disk. Told ahead, the kernel has them all under way at once. Where everything is in memory
already, telling is a waste; whether it is, the kernel counts.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from hotloop.feed.memory import Mapping

_WHOSE = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)


class ReadAhead:
    """Watches whether reading goes to storage; ``tell`` of :meth:`around` is called only while it does."""

    def __init__(self) -> None:
        self._goes_to_storage = True  # nobody knows yet

    @contextmanager
    def around(self, tell: Callable[[], None]) -> Iterator[None]:
        """A batch is read inside."""
        before = _blocks_read()
        if self._goes_to_storage:
            tell()
        yield
        self._goes_to_storage = _blocks_read() != before


def tell_rows(
    mapping: Mapping, row_bytes: int, starts: NDArray[np.int64], num_rows: NDArray[np.int64]
) -> None:
    """Ask for ``num_rows`` rows from each of ``starts``, neighbours together."""
    order = np.argsort(starts)
    first = end = -1
    for start, stop in zip(starts[order].tolist(), (starts + num_rows)[order].tolist(), strict=True):
        if start <= end:
            end = max(end, stop)
            continue
        if end > first:
            mapping.will_need(first * row_bytes, (end - first) * row_bytes)
        first, end = start, stop
    if end > first:
        mapping.will_need(first * row_bytes, (end - first) * row_bytes)


def _blocks_read() -> int:
    return resource.getrusage(_WHOSE).ru_inblock
