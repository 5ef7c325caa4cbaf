"""A trace's numbers as phases and sections: what a terminal shows and JSON carries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from hotloop.logs.log import Phase, Section
from hotloop.logs.trace.analysis import Analysis, Device, Row
from hotloop.logs.trace.causes import cut, short_name
from hotloop.logs.trace.idle import HELD, LAUNCHED, QUEUED
from hotloop.phases import COLUMN, PHASES
from hotloop.units import duration, share, size

_NUM_LINES: Final = 8
_NUM_DATA: Final = 50
#: Shares that round to nothing are left to JSON.
_MENTIONED: Final = 0.005

#: Why a device is idle, as people read it.
_WHY: Final = {
    "data_wait": "waiting for a batch (DataLoader)",
    "transfer": "copying to the device while the host waits",
    "launching forward": "launching forward",
    "launching backward": "launching backward",
    "launching optimizer": "launching the optimizer",
    "forward": "host in forward, nothing launched for 1 ms",
    "backward": "host in backward, nothing launched for 1 ms",
    "optimizer": "host in optimizer, nothing launched for 1 ms",
    "sync": "host waited for a value of the device",
    "collective": "issuing collectives",
    "evaluation": "evaluation",
    "checkpoint": "writing a checkpoint",
    "logging": "logging",
    "other": "Python outside of operators",
    "queued": "work was queued, or its launch not recorded",
}


def phases(analysis: Analysis) -> tuple[Phase, ...]:
    """The window by phase, adding up to it: the device's work and idle time, or the main thread's time."""
    device, window = analysis.device, analysis.window
    if device:
        seconds = device.idle.by_phase() + device.compute_by_phase
        seconds[COLUMN["transfer"]] += device.copy_alone_s
        seconds[COLUMN["collective"]] += device.collective_alone_s
    else:
        seconds = analysis.host.by_phase()
    return tuple(
        Phase(name=name, s_per_step=each / window.num_steps, share=each / window.span_s)
        for name, each in zip(PHASES, seconds.tolist(), strict=True)
        if each > 0
    )


def verdict(analysis: Analysis) -> str:
    """One sentence: how much the device computed, and what kept it from computing most."""
    if analysis.doubt:
        return f"{analysis.doubt}: what the device and the host waited for is not said."
    device, span_s = analysis.device, analysis.window.span_s
    if device is None:
        most = sorted(phases(analysis), key=lambda phase: -phase.share)[:3]
        parts = ", ".join(f"{phase.name.replace('_', ' ')} {share(phase.share)}" for phase in most)
        return f"No device in the trace. The main thread's time: {parts}."
    said = f"The device computes {share(device.compute_s / span_s)} of the time"
    reasons = [(f"idle, {_WHY[name]}", each) for name, each in idle_reasons(device)]
    reasons += [("in collectives alone", device.collective_alone_s), ("only copying", device.copy_alone_s)]
    what, most_s = max(reasons, key=lambda reason: reason[1])
    return said + (f"; {share(most_s / span_s)} it is {what}." if most_s >= 0.05 * span_s else ".")


def idle_reasons(device: Device) -> list[tuple[str, float]]:
    """Why the device was idle, in seconds, the most first."""
    held, launched = device.idle.by_phase(HELD).tolist(), device.idle.by_phase(LAUNCHED).tolist()
    seconds = dict(zip(PHASES, held, strict=True))
    seconds["queued"] = float(device.idle.by_phase(QUEUED).sum())
    seconds |= {f"launching {name}": each for name, each in zip(PHASES, launched, strict=True)}
    return sorted(((name, each) for name, each in seconds.items() if each > 0), key=lambda row: -row[1])


def sections(analysis: Analysis) -> tuple[Section, ...]:
    """Everything beyond phases and findings."""
    device = analysis.device
    found = [_steps(analysis)]
    if device and not analysis.doubt:
        found.append(_device(analysis, device))
        found.append(_table("Longest kernels", analysis, device.kernels, short_name))
        found += [_table("Copies", analysis, device.copies, cut)] if device.copies else []
    if analysis.operators:
        found.append(_table("Longest operators, without what they call", analysis, analysis.operators, cut))
    return tuple(found)


def _steps(analysis: Analysis) -> Section:
    window = analysis.window
    lengths = np.array([end - start for _, start, end in window.steps]) / 1e9
    if not len(lengths):
        line = f"none marked; the whole trace is {duration(window.span_s)}"
        return Section(title="Steps", lines=(line,), data={"span_s": window.span_s, "num_steps": 0})
    median, longest = float(np.median(lengths)), float(lengths.max())
    number = window.steps[int(lengths.argmax())][0]
    return Section(
        title="Steps",
        lines=(f"{len(lengths)}, median {duration(median)}, longest {duration(longest)} (step {number})",),
        data={"span_s": window.span_s, "num_steps": len(lengths), "median_s": median, "longest_s": longest},
    )


def _device(analysis: Analysis, device: Device) -> Section:
    window = analysis.window
    rows = [
        ("computing", device.compute_s),
        ("collectives, nothing else", device.collective_alone_s),
        ("copies, nothing else", device.copy_alone_s),
        ("idle", device.idle_s),
    ]
    reasons = idle_reasons(device)
    rows += [("  " + _WHY[name], each) for name, each in reasons]
    lines = [_share_line(name, each, analysis) for name, each in rows if each >= _MENTIONED * window.span_s]
    if device.collective_s:
        hidden = 1 - device.collective_alone_s / device.collective_s
        each = duration(device.collective_s / window.num_steps)
        lines.append(f"collectives {each} per step, {share(hidden)} of it behind computing")
    title = f"The device{f' ({device.name})' if device.name else ''}"
    if device.num_devices > 1:
        title += f", the busiest of {device.num_devices}"
    data = {
        "device": device.name,
        "num_devices": device.num_devices,
        "compute_s": device.compute_s,
        "collective_s": device.collective_s,
        "collective_alone_s": device.collective_alone_s,
        "copy_alone_s": device.copy_alone_s,
        "idle_s": device.idle_s,
        "idle_by_cause_s": dict(reasons),
        "compute_by_phase_s": {
            name: each for name, each in zip(PHASES, device.compute_by_phase.tolist(), strict=True) if each
        },
    }
    return Section(title=title, lines=tuple(lines), data=data)


def _table(title: str, analysis: Analysis, rows: tuple[Row, ...], words: Callable[[str], str]) -> Section:
    lines = [f"{_each(row, analysis)}  {words(row.name)}{_rate(row)}" for row in rows[:_NUM_LINES]]
    data = {"rows": [dict(vars(row)) for row in rows[:_NUM_DATA]]}
    return Section(title=f"{title} (per step)", lines=tuple(lines), data=data)


def _share_line(name: str, seconds: float, analysis: Analysis) -> str:
    each = duration(seconds / analysis.window.num_steps)
    return f"{name:<46}{share(seconds / analysis.window.span_s):>6}  {each:>8} per step"


def _each(row: Row, analysis: Analysis) -> str:
    steps = analysis.window.num_steps
    return f"{duration(row.seconds / steps):>8} in {row.count / steps:>6,.0f}"


def _rate(row: Row) -> str:
    return f" at {size(row.num_bytes / row.seconds)}/s" if row.num_bytes and row.seconds else ""
