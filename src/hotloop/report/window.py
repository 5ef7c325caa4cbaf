"""Which part of a long recording a trace keeps: whole steps, the first, the last and the slowest."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hotloop.measure.steps import Steps
from hotloop.record.recording import Process
from hotloop.record.rows import LONG

Ints = npt.NDArray[np.int64]

#: Events a row may become: its slice and a counter.
_EVENTS_PER_ROW: Final = 2


def kept_steps(steps: Steps | None, budget: int, num_rows: int) -> Ints:
    """Indices of the steps to show within ``budget`` events, in order."""
    if steps is None or steps.num_steps == 0:
        return np.zeros(0, np.int64)
    total = steps.num_steps
    per_step = 1 + _EVENTS_PER_ROW * num_rows / total
    count = max(1, min(total, int(budget / per_step)))
    if count == total:
        return np.arange(total)
    third = max(1, count // 3)
    slowest = np.argsort(steps.start_s - steps.end_s, kind="stable")[:third]
    return np.unique(np.concatenate([np.arange(third), np.arange(total - third, total), slowest]))


def kept_rows(process: Process, steps: Steps | None, kept: Ints, budget: int) -> Ints:
    """Indices of the rows of those steps and of what lies before the first and after the last step.

    Without steps: the first and the last rows.
    """
    rows, most = process.rows, max(2, budget // _EVENTS_PER_ROW)
    if len(rows) <= most:
        return np.arange(len(rows))
    if steps is None or not len(kept):
        return np.concatenate([np.arange(most // 2), np.arange(len(rows) - most // 2, len(rows))])
    seconds = (rows["start"].astype(np.int64) - process.start_ns) / 1e9
    step = np.searchsorted(steps.start_s, seconds, side="right") - 1
    outside = (step < 0) | (seconds >= steps.end_s[np.clip(step, 0, None)])
    inside = ~outside & np.isin(step, kept)
    around = np.flatnonzero(outside)
    ends = np.unique(np.concatenate([around[: most // 8], around[-(most // 8) :]]))
    return np.union1d(np.flatnonzero(inside), ends)


def durations_ns(rows: npt.NDArray[Any]) -> Ints:
    """Lengths of rows in nanoseconds."""
    lengths = rows["dur"].astype(np.int64)
    return np.where((rows["flags"] & LONG) != 0, lengths * 1000, lengths)
