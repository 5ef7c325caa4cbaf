"""Which time a column is, told by all its rows: a step's (or its milliseconds), all since the start, or all
between two prints."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from hotloop.logs.meanings import PHASE_ROLES
from hotloop.logs.rates import seconds, steps
from hotloop.logs.streams import Floats, Ints, Stream

_LEAST: Final = 8


def settle(stream: Stream) -> None:
    """Rename or divide a ``time`` that is no step's; phases that can no longer be told are dropped."""
    times = stream.get("time")
    if stream.mode != "train" or stream.bar or times is None:
        return
    at = np.flatnonzero(np.isfinite(times))
    if len(at) <= _LEAST:
        return
    clock = seconds(stream)
    if _since_start(times[at], clock[at] if clock is not None else None):
        _as_elapsed(stream, times, at)
    elif clock is not None and stream.get("step") is not None:
        _per_step(stream, times, at, clock)


def _since_start(times: Floats, clock: Floats | None = None) -> bool:
    """Whether times rise with every row from near nothing, as fast as the clock where there is one."""
    rises = np.diff(times)
    usual = float(np.median(rises))
    if not usual > 0 or times[0] >= 3 * usual or np.mean(rises > 0) < 0.9:
        return False
    if np.mean((rises > 0) | (times[1:] < 3 * usual)) <= 0.98:  # it may start again, with each epoch
        return False
    return clock is None or 0.5 < _ratio(rises, np.diff(clock), rises > 0) < 2


def _as_elapsed(stream: Stream, times: Floats, at: Ints) -> None:
    columns, epoch = stream.columns, stream.get("epoch")
    for role in PHASE_ROLES:
        if role in columns and _since_start(columns[role][at]):
            del columns[role]
    if stream.get("step") is None and epoch is not None and (np.diff(epoch[at]) > 0).all():
        rises = np.diff(times[at], prepend=0.0)  # one row for each epoch: its time is what was added
        columns["time"] = np.full(len(times), np.nan)
        columns["time"][at] = np.where(rises > 0, rises, times[at])
        return
    del columns["time"]
    if stream.get("elapsed") is None:
        columns["elapsed"] = times


def _per_step(stream: Stream, times: Floats, at: Ints, clock: Floats) -> None:
    """Divide times that are as long as the clock's gaps between rows many steps apart, or 1000 times."""
    columns = stream.columns
    rows = columns["weight"][at[1:]]
    done, passed = np.diff(steps(stream)[at]) / rows, np.diff(clock[at]) / rows
    good = (done > 0) & (passed >= 0)
    if good.sum() < max(_LEAST, 0.8 * len(good)):
        return
    if 700 < _ratio(times[at[1:]] * done, passed, good) < 1400:  # milliseconds, and nothing says so
        for role in ("time", *PHASE_ROLES):
            if role in columns:
                columns[role] = columns[role] / 1000
        return
    if np.median(done[good]) < 1.5:
        return
    if not 0.7 < _ratio(times[at[1:]], passed, good) < 1.4:
        return
    count = np.full(len(times), np.median(done[good]))
    count[at[1:][good]] = done[good]
    columns["time"] = times / count
    for role in PHASE_ROLES:
        if role in columns:
            if np.nanmedian(columns[role]) > 1.02 * np.nanmedian(columns["time"]):
                columns[role] = columns[role] / count
            else:  # of a step or of all since the last print: who knows
                del columns[role]


def _ratio(times: Floats, passed: Floats, good: npt.NDArray[np.bool_]) -> float:
    """Times over what passed by the clock, without the longest gaps (pauses); NaN where no time passed."""
    kept = good & (passed >= 0)
    if not kept.any():
        return float("nan")
    kept &= passed <= np.quantile(passed[kept], 0.9)
    whole = float(passed[kept].sum())
    return float(times[kept].sum()) / whole if whole > 0 else float("nan")
