"""A glimpse of a process of which the rows stay on disk: a few stretches of them, spread over the run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from hotloop.record.recording import Later, Process


def glimpse(process: Process, count: int, most: int) -> Process:
    """The process with the rows of ``count`` stretches in memory, about ``most`` together, and those of its
    workers in the same time; with all rows where there are no more.
    """
    held = vars(process)["rows"]
    if not isinstance(held, Later) or held.num_rows <= most:
        return process.loaded()
    wanted = _stretches(held, count, most)
    rows, times = held(held.index[wanted]), held.index[:, 2:] + held.shift_ns
    begun = times[1:, 0][wanted[1:] & ~wanted[:-1]]  # where stretches begin behind what is left out
    return replace(
        process,
        rows=rows,
        workers=tuple(_during(worker, times[wanted]) for worker in process.workers),
        cuts=tuple(np.searchsorted(rows["start"], begun.astype(np.uint64)).tolist()),
    )


def _stretches(held: Later, count: int, most: int) -> npt.NDArray[np.bool_]:
    """[pieces] those that begin in one of the stretches; the first and the last piece always."""
    ends = held.index[:, 1].cumsum()
    apart = (ends[-1] - most / count) / max(1, count - 1)
    wanted = (ends - held.index[:, 1]) % apart < most / count
    wanted[[0, -1]] = True
    return np.asarray(wanted)


def _during(worker: Process, times: npt.NDArray[np.int64]) -> Process:
    """A worker with the rows of the pieces that reach into one of these times (begin, end)."""
    held = vars(worker)["rows"]
    if not isinstance(held, Later):
        return worker
    begins, ends = times[:, 0], np.maximum.accumulate(times[:, 1])
    at = np.searchsorted(begins, held.index[:, 3] + held.shift_ns, side="right") - 1
    wanted = (at >= 0) & (ends[at] >= held.index[:, 2] + held.shift_ns)
    return replace(worker, rows=held(held.index[wanted]))
