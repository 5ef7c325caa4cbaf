"""Reads from storage begun for a whole batch before the first of its rows is touched.

A row that is not in memory costs its reader a page fault, one after the other: 64 of them are 64 times the
latency of the disk. Told ahead, the kernel has them all under way at once. Where everything is in memory
already, telling is a waste; whether it is, the kernel counts.
"""

from __future__ import annotations

import resource

import numpy as np
from numpy.typing import NDArray

from hotloop.feed.memory import Mapping

_WHOSE = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)


class ReadAhead:
    """Watches whether reading goes to storage: only then is telling worth its while."""

    def __init__(self) -> None:
        self.is_worth_while = True  # nobody knows yet

    def begin(self) -> int:
        """Called before a batch is read; what :meth:`end` wants to know."""
        return _blocks_read()

    def end(self, begun: int) -> None:
        """Called after a batch was read."""
        self.is_worth_while = _blocks_read() != begun


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
