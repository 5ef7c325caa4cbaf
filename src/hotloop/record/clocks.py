"""How the clocks of two machines stand to each other, from what their ranks did together.

No rank leaves a collective before every rank has entered it, so ranks leave it nearly together. Where the
host waits inside, these ends are the same moment on two clocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hotloop.record import rows as r
from hotloop.record.recording import Process, Recording, durations_ns, in_turn

#: Collectives that every rank leaves together, the surest first. On an accelerator only a barrier holds up
#: the host.
_TOGETHER: Final = ("barrier", "backward", "all_reduce", "all_gather", "reduce_scatter", "all_to_all")
_FEWEST: Final = 5
#: A run is looked at in so many parts.
_PARTS: Final = 8
#: Calendars of one machine, read in two processes, are no further apart than this.
_SAME_S: Final = 0.5


@dataclass(frozen=True, kw_only=True)
class Host:
    """What a run folder says of its machine's clock: ``zero_ns`` is the calendar's time at its zero."""

    name: str
    zero_ns: int | None
    ends: Mapping[str, npt.NDArray[np.int64]]  # of collectives, by name, in order, in ns
    whole: bool  # the process that they are of came to its end


@dataclass(frozen=True, kw_only=True)
class Clock:
    """How far a clock is ahead of another, and what told it; in parts of the run it seemed ahead by as much
    more or less as ``within_s`` says (None: nobody knows).
    """

    ahead_ns: int
    within_s: float | None
    by: str


def host_of(recording: Recording) -> Host:
    """The host of a run folder; its lowest rank speaks for its clock."""
    name, since = str(recording.machine.get("hostname") or ""), recording.start_unix_s
    zero = int(since * 1e9) - recording.start_ns if since else None
    process = next((one for one in recording.ranks if one.num_rows), None)
    ends = _ends(process) if process is not None else {}
    whole = process is not None and bool(process.last("exit"))
    return Host(name=name, zero_ns=zero, ends=ends, whole=whole)


def clock(host: Host, reference: Host) -> Clock:
    """How far the clock of ``host`` is ahead of that of ``reference``."""
    calendar = None
    if host.zero_ns is not None and reference.zero_ns is not None:
        calendar = reference.zero_ns - host.zero_ns
        if host.name and host.name == reference.name and abs(calendar) < _SAME_S * 1e9:
            return Clock(ahead_ns=0, within_s=0.0, by="the same machine")
    for name in _TOGETHER:
        own, other = (one.ends.get(name, np.zeros(0, np.int64)) for one in (host, reference))
        if len(own) != len(other) and host.whole and reference.whole:
            continue  # it is not the same collectives
        count = min(len(own), len(other))
        if count < _FEWEST:
            continue
        ahead = own[:count] - other[:count]
        middle = int(np.median(ahead))
        # A rank that waits for a core leaves late, at random; clocks that drift show from part to part.
        parts = np.array_split(ahead, min(_PARTS, count // _FEWEST))
        within = max(abs(float(np.median(part)) - middle) for part in parts)
        if len(parts) == 1:
            within = float(np.abs(ahead - middle).max())
        if within < 0.5 * float(np.median(np.diff(other[:count]))):
            return Clock(ahead_ns=middle, within_s=within / 1e9, by=f"{count} ends of {name}")
    return Clock(ahead_ns=calendar or 0, within_s=None, by="nothing" if calendar is None else "calendar")


def _ends(process: Process) -> dict[str, npt.NDArray[np.int64]]:
    """[n] ends of each kind of collective in which the host of this process waits for the others."""
    modules = process.notes.get("module", ())
    on_cpu = all(str(device).startswith("cpu") for note in modules for device in note.get("devices") or ())
    exchanges = any(note.get("wrapper") in ("DDP", "FSDP") for note in modules)
    found: dict[str, list[Any]] = {name: [] for name in _TOGETHER}
    backward = 0
    for piece in in_turn(process.rows):
        rows = piece[np.isin(piece["kind"], (r.COLLECTIVE, r.BACKWARD, r.OPTIMIZER))]
        ends = rows["start"].astype(np.int64) + durations_ns(rows)
        called = rows["kind"] == r.COLLECTIVE
        for name in found if on_cpu else ("barrier",):
            if name != "backward":
                found[name].append(ends[called & (rows["obj"] == r.COLLECTIVE_OPS.index(name))])
        if on_cpu and exchanges:  # gradients are exchanged in the last backward before each update
            for kind, end in zip(rows["kind"][~called].tolist(), ends[~called].tolist(), strict=True):
                if kind == r.OPTIMIZER and backward:
                    found["backward"].append([backward])
                backward = end if kind == r.BACKWARD else 0
    return {name: np.concatenate(parts).astype(np.int64) for name, parts in found.items() if parts}
