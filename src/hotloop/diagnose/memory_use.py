"""Memory over time, as the launcher sampled it and the probe noted it: how much, its growth, the limit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.series import half_slopes, steady_growth
from hotloop.diagnose.worker_memory import private, shared_since_fork
from hotloop.findings import Severity
from hotloop.measure.steps import Floats
from hotloop.record.recording import Recording
from hotloop.record.samples import finite

#: Fewer samples than this in the last three fifths show no line.
_MIN_SAMPLES = 8
#: Fewer than this in the whole span cannot.
FEW_SAMPLES = 2 * _MIN_SAMPLES
#: The later half grows clearly slower than the first by this part of it: memory may level off.
_SLOWER = 0.75
#: And goes on to, in the time that the line is through: after a warm-up a leak is steady.
_STILL_SLOWER = 0.9
#: Mann-Kendall is sure of growth from here on.
_SURE_Z = 3.0


@dataclass(frozen=True, kw_only=True)
class Growth:
    """A line through the last three fifths of the training span. Bytes and seconds."""

    start_bytes: float
    end_bytes: float
    bytes_per_s: float
    ci95: tuple[float, float]  # of bytes_per_s
    seconds: float
    slows: bool  # in later halves, of the whole span and of the line, it is clearly slower

    @property
    def grown_bytes(self) -> float:
        """Growth over the time looked at."""
        return self.bytes_per_s * self.seconds


def growth(seconds: Floats, values: Floats, *, goes_on: bool = True) -> Growth | None:
    """The growth of a series in its last three fifths, None where it is no steady line: what levels off (a
    cache that is full, an allocator that has what it needs) is no leak.
    """
    known = np.isfinite(seconds) & np.isfinite(values)
    t, v = seconds[known], values[known]
    first, second = half_slopes(t, v)
    late = t >= t[0] + 0.4 * (t[-1] - t[0]) if len(t) else np.zeros(0, bool)
    t, v = t[late], v[late]
    if len(t) < _MIN_SAMPLES:
        return None
    slope = steady_growth(t, v, z=_SURE_Z, goes_on=goes_on)
    if slope is None:
        return None
    early, late_half = half_slopes(t, v)
    rest = v - slope * t
    error = float(np.std(rest)) / max(1e-9, float(np.std(t)) * np.sqrt(len(t)))
    return Growth(
        start_bytes=float(v[0]),
        end_bytes=float(v[-1]),
        bytes_per_s=slope,
        ci95=(slope - 2 * error, slope + 2 * error),
        seconds=float(t[-1] - t[0]),
        slows=second < _SLOWER * first and late_half < _STILL_SLOWER * early,
    )


def in_span(evidence: Evidence, pid: int) -> tuple[Floats, Floats]:
    """Seconds and private bytes of a process inside the training span, empty where it was not sampled."""
    columns = evidence.recording.process_system.get(pid, {})
    if not {"t_s", "rss_bytes"} <= set(columns):
        return np.zeros(0), np.zeros(0)
    seconds, values = np.asarray(columns["t_s"], float), private(columns)
    inside = (seconds >= evidence.span[0]) & (seconds <= evidence.span[1]) & np.isfinite(values)
    return seconds[inside], values[inside]


def paced(evidence: Evidence, seconds: Floats) -> Floats:
    """The same times as if all steps had taken equally long: memory grows with steps, and steps do not keep
    pace.
    """
    steps = evidence.steps
    start, end = evidence.span
    if steps.num_steps < 2:
        return seconds
    done = np.interp(seconds - start + steps.span[0], steps.end_s, np.arange(1.0, steps.num_steps + 1))
    return np.asarray(start + done * (end - start) / steps.num_steps, float)


def limit_of(machine: Mapping[str, Any]) -> float | None:
    """What the run may use: the tighter of the machine's memory and the cgroup's limit."""
    known = (machine.get(name) for name in ("ram_bytes", "memory_limit_bytes"))
    return min((float(value) for value in known if value), default=None)


def room_bytes(evidence: Evidence) -> float | None:
    """What was still free at the end of the run; under a cgroup limit, what the run's own processes left of
    it.
    """
    limit = evidence.machine.get("memory_limit_bytes")
    ram = evidence.machine.get("ram_bytes")
    if limit and (not ram or limit < ram):
        return float(limit) - peak_of(evidence.recording)
    known = finite(evidence.recording.system.get("memory_available_bytes"))
    return float(known[-1]) if len(known) else None


def run_ratio(evidence: Evidence) -> float | None:
    """The peak as a share of what the run may use; None where either is unknown."""
    used, most = peak_of(evidence.recording), limit_of(evidence.machine)
    return used / most if used > 0 and most else None


def peak_of(recording: Recording) -> float:
    """The largest sum of private memory over all processes of the run at one sample, shared parts counted
    once.
    """
    sums: dict[float, float] = {}
    shared: dict[float, float] = {}
    inherited = shared_since_fork(recording)
    for pid, columns in recording.process_system.items():
        if "t_s" not in columns or "rss_bytes" not in columns:
            continue
        rest = np.asarray(columns.get("shared_bytes", np.zeros(len(columns["t_s"]))), float)
        alone = np.maximum(0.0, private(columns) - inherited.get(pid, 0.0))
        for t, own, common in zip(columns["t_s"], alone, rest, strict=True):
            if np.isfinite(own):
                sums[float(t)] = sums.get(float(t), 0.0) + float(own)
                shared[float(t)] = max(shared.get(float(t), 0.0), float(common))
    return max((total + shared[t] for t, total in sums.items()), default=0.0)


def severity_by_time(seconds: float | None) -> Severity:
    """How urgent growth is that meets the limit in so many seconds; None where the limit is not known."""
    if seconds is None or seconds > 7 * 86400:
        return "low"
    return "high" if seconds < 3600 else "medium"


def device_notes(evidence: Evidence) -> list[dict[str, Any]]:
    """The ``memory`` notes of the rank spoken about that tell of a device, in order."""
    return [note for note in evidence.notes("memory") if (note.get("device_reserved") or 0) > 0]


def note_column(found: list[dict[str, Any]], name: str) -> Floats:
    """One field of the notes, nan where it is missing; ``t`` in seconds."""
    values = np.array(
        [float(note.get(name, np.nan) if note.get(name) is not None else np.nan) for note in found]
    )
    return values / 1e9 if name == "t" else values
