"""Device clock at phase boundaries -> how busy the device was, and which host phase kept it idle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hotloop.measure.attribution import BASE, Bytes
from hotloop.measure.spans import Table, innermost
from hotloop.measure.stepping import Seen
from hotloop.measure.steps import DeviceUse
from hotloop.phases import PHASES
from hotloop.record import rows as row

#: A device less than this behind the host has drained (ns): exact on a simulated device.
DRAINED_NS = 300_000
#: Fewer boundaries say nothing.
LEAST_BOUNDARIES = 20


def device_use(boundaries: Table, seen: Seen, phase: Bytes) -> DeviceUse | None:
    """Idle time by the host phase in which the device ran dry; an upper bound where work is launched."""
    inside = boundaries.began(*seen.stepping.span)
    rows = boundaries.take(inside)
    if len(rows) < LEAST_BOUNDARIES or not len(seen.stepping):
        return None
    host, lag = rows.start, rows.duration
    done = np.maximum.accumulate(host + lag)
    idle = np.maximum(0, host[1:] - np.maximum(host[:-1], done[:-1]))
    idle[lag[1:] >= DRAINED_NS] = 0
    ended = (rows.flags[1:] & row.DEVICE_END) != 0
    # A boundary that begins a phase closes the time before it; what idled earlier is not the phase's own.
    owner = innermost(seen.spans, host[1:] - 1)
    charged = np.where(owner >= 0, phase[np.maximum(owner, 0)], BASE[0])
    charged = np.where(ended & (owner < 0), BASE[rows.obj[1:] & 0xFF], charged)
    began = np.where(owner >= 0, seen.spans.start[np.maximum(owner, 0)], host[:-1])
    earlier = np.clip(began - (host[1:] - idle), 0, idle)
    around = innermost(seen.spans, began - 1)
    before = np.where(around >= 0, phase[np.maximum(around, 0)], BASE[0])
    by_phase = np.bincount(charged, weights=idle - earlier, minlength=len(PHASES)) / 1e9
    by_phase += np.bincount(before, weights=earlier, minlength=len(PHASES)) / 1e9
    watched = (host[-1] - host[0]) / 1e9
    busy = 1.0 - float(by_phase.sum()) / watched if watched > 0 else 0.0
    return DeviceUse(
        busy_ratio=min(1.0, max(0.0, busy)),
        idle_s_by_phase={name: float(by_phase[i]) for i, name in enumerate(PHASES) if by_phase[i] > 0},
    )


def with_kernels(device: DeviceUse | None, profile: Mapping[str, Any]) -> DeviceUse | None:
    """What kernels said in the window of ``--profile`` (the ``profile`` note), beside what events said."""
    if not profile.get("kernels"):
        return device
    if device is None:
        device = DeviceUse(busy_ratio=float(profile.get("device_busy_ratio") or 0.0), idle_s_by_phase={})
    return replace(
        device, launch_bound_ratio=profile.get("launch_gap_ratio"), kernels=tuple(profile["kernels"])
    )
