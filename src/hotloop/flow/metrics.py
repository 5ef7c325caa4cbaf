"""What of a run other tools are given: one table of names with units, and the points of a run under them.

A point is a moment: seconds since 1970, the step, and values by name. Names of Prometheus and OpenTelemetry
have ``hotloop_`` before them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from time import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hotloop.flow.course import Course
from hotloop.phases import PHASES
from hotloop.record import rows as r
from hotloop.record.recording import Recording

if TYPE_CHECKING:
    from hotloop.flow.examine import Examination

#: Name -> unit and meaning. Those of a GPU come once for each, with its index.
METRICS: Final[Mapping[str, tuple[str, str]]] = {
    "steps": ("1", "steps so far"),
    "samples": ("1", "samples of the batches so far, where their size is known"),
    "samples_per_second": (
        "1/s",
        "while a run goes on: over its last 64 plain steps; afterwards: of the step",
    ),
    "step_seconds": ("s", "one step; while a run goes on the median of its last 64 plain steps"),
    "loss": ("1", "the last one that was recorded"),
    **{f"{phase}_seconds": ("s", f"of the step: {phase.replace('_', ' ')}") for phase in PHASES[1:]},
    "cpu_ratio": ("1", "share of all CPUs that is busy"),
    "memory_used_bytes": ("By", "of the machine"),
    "memory_available_bytes": ("By", "of the machine"),
    "disk_read_bytes_per_second": ("By/s", "of the machine"),
    "disk_write_bytes_per_second": ("By/s", "of the machine"),
    "disk_busy_ratio": ("1", "of the busiest disk"),
    "gpu_utilization_ratio": ("1", "share of time in which a kernel ran, as NVML has it"),
    "gpu_memory_bytes": ("By", "in use"),
    "gpu_power_watts": ("W", "drawn"),
    "gpu_power_limit_watts": ("W", "enforced"),
    "gpu_temperature_celsius": ("Cel", "of the chip"),
    "gpu_sm_clock_megahertz": ("MHz", "of its multiprocessors"),
}
#: Columns of ``launch.system`` under other names.
_OF_SAMPLE: Final = {
    "cpu_ratio": "cpu_ratio", "memory_used_bytes": "memory_used_bytes",
    "memory_available_bytes": "memory_available_bytes",
    "disk_read_bytes_per_s": "disk_read_bytes_per_second",
    "disk_write_bytes_per_s": "disk_write_bytes_per_second", "disk_busy_ratio": "disk_busy_ratio",
    "util_ratio": "gpu_utilization_ratio", "memory_bytes": "gpu_memory_bytes", "power_w": "gpu_power_watts",
    "power_limit_w": "gpu_power_limit_watts", "temperature_c": "gpu_temperature_celsius",
    "sm_clock_mhz": "gpu_sm_clock_megahertz",
}  # fmt: skip
_GPU: Final = re.compile(r"gpu(\d{1,3})_(\w+)")

#: A metric's name, and the index of a GPU or "".
Key = tuple[str, str]


@dataclass(frozen=True)
class Point:
    """Values at a moment; all are finite, but a loss may be anything."""

    unix_s: float
    step: int
    values: Mapping[Key, float]


def flat(key: Key) -> str:
    """One word for tools without labels: ``gpu0_power_watts``."""
    name, gpu = key
    return f"gpu{gpu}_{name.removeprefix('gpu_')}" if gpu else name


def now(course: Course, sample: Mapping[str, float]) -> Point | None:
    """The point of this moment in a run that goes on; None before its first step."""
    lead = course.lead
    if lead is None:
        return None
    known = {
        "steps": float(lead.steps),
        "samples": lead.samples_seen or None,
        "samples_per_second": lead.pace.samples_per_s if lead.samples_seen else None,
        "step_seconds": lead.pace.usual_s or None,
        "loss": lead.loss,
    }
    found = {(name, ""): value for name, value in known.items() if value is not None}
    found |= {key: float(sample[name]) for name, key in _keys(sample).items() if isfinite(sample[name])}
    return Point(time(), lead.steps, found)


def points(examination: Examination) -> Iterator[Point]:
    """A point for every step of the rank that the verdict is about."""
    steps, process, recording = examination.lead, examination.process, examination.recording
    if steps is None or process is None:
        return
    ends_s = steps.end_s + (process.start_ns - recording.start_ns) / 1e9  # since the command started
    system = {key: _before(recording, name, ends_s) for name, key in _keys(recording.system).items()}
    losses = process.rows[process.rows["kind"] == r.LOSS]
    at = np.searchsorted(losses["start"] / 1e9, ends_s + recording.start_ns / 1e9, "right") - 1
    samples = np.cumsum(np.nan_to_num(steps.samples))
    for i in range(len(steps.end_s)):
        took = float(steps.end_s[i] - steps.start_s[i])
        found: dict[Key, float] = {("steps", ""): i + 1.0, ("step_seconds", ""): took}
        if steps.samples[i] > 0:
            found |= {
                ("samples", ""): float(samples[i]), ("samples_per_second", ""): float(steps.samples[i]) / took
            }  # fmt: skip
        if at[i] >= 0:
            found["loss", ""] = float(losses["value"][at[i] : at[i] + 1].view("<f4")[0])
        found |= {(f"{phase}_seconds", ""): float(steps.phases[i, n]) for n, phase in enumerate(PHASES) if n}
        found |= {key: float(values[i]) for key, values in system.items() if isfinite(values[i])}
        yield Point(recording.start_unix_s + float(ends_s[i]), i + 1, found)


def summary(all_points: Iterator[Point]) -> Point | None:
    """One point for tools that keep no past: counts and the loss as they ended, means of all else."""
    sums: dict[Key, tuple[float, int]] = {}
    last = None
    for last in all_points:
        for key, value in last.values.items():
            total, count = sums.get(key, (0.0, 0))
            sums[key] = total + value, count + 1
    if last is None:
        return None
    means = {key: total / count for key, (total, count) in sums.items()}
    spent_s, _ = sums["step_seconds", ""]
    if ("samples", "") in last.values and spent_s:  # the mean of rates is no rate
        means["samples_per_second", ""] = last.values["samples", ""] / spent_s
    kept = {key: value for key, value in last.values.items() if key[0] in ("steps", "samples", "loss")}
    return Point(last.unix_s, last.step, means | kept)


def _keys(names: Mapping[str, Any]) -> dict[str, Key]:
    found = {}
    for name in names:
        match = _GPU.fullmatch(name)
        metric = _OF_SAMPLE.get(match[2] if match else name)
        if metric is not None and metric.startswith("gpu_") == bool(match):
            found[name] = metric, match[1] if match else ""
    return found


def _before(recording: Recording, name: str, ends_s: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The last sample of a column before each step's end, nan where there was none."""
    at = np.searchsorted(recording.system["t_s"], ends_s, "right") - 1
    values = recording.system[name]
    return np.where(at >= 0, values[np.maximum(at, 0)], np.nan) if len(values) else np.full(len(at), np.nan)
