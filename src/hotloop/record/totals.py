"""Sampled columns of several processes taken together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hotloop.record.recording import Process, Recording

Line = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]


def total(processes: Iterable[Mapping[str, Any]], column: str, *, whole: bool = True) -> Line | None:
    """Times and the sum of a column over processes; a process counts only while it lived.

    A process that lacks the column makes a ``whole`` sum None: a sum with holes in it would be a lie. Else it
    is left out.
    """
    known = []
    for item in processes:
        times, values = np.asarray(item.get("t_s", ()), float), np.asarray(item.get(column, ()), float)
        if not len(times):
            continue
        if len(values) == len(times) and np.isfinite(values).any():
            known.append((times, values))
        elif whole:
            return None
    if not known:
        return None
    at = np.unique(np.concatenate([times for times, _ in known]))
    summed = np.zeros(len(at))
    for times, values in known:
        finite = np.isfinite(values)
        lived = (at >= times[0]) & (at <= times[-1])
        summed += np.where(lived, np.interp(at, times[finite], values[finite]), 0.0)
    return at, summed


def resident(processes: Sequence[Mapping[str, Any]]) -> Line | None:
    """Memory of processes together: shared pages divided among their users where sampled, else resident."""
    return total(processes, "pss_bytes") or total(processes, "rss_bytes")


def at_times(line: Line | None, times: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """The values of a line at other times, 0 outside of it."""
    return np.interp(times, *line, left=0.0, right=0.0) if line else np.zeros(len(times))


def sampled(recording: Recording, processes: Iterable[Process]) -> list[Mapping[str, Any]]:
    """The sampled columns of these processes, of those that were sampled."""
    found = (recording.process_system.get(process.pid) for process in processes)
    return [columns for columns in found if columns]


def device_peak(recording: Recording) -> float | None:
    """The most memory that any rank held on its device, in bytes."""
    notes = (note for process in recording.ranks for note in process.notes.get("memory", ()))
    return max((float(note["device_peak"]) for note in notes if note.get("device_peak")), default=None)
