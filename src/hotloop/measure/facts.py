"""What the notes say about the run, merged into one dictionary.

Keys (a missing note leaves its key out, lists may be empty):

``torch`` the flags (of the first step, overlaid by those at exit) · ``anomaly`` · ``modules`` ·
``optimizers`` · ``autocast`` · ``compile`` · ``ddp`` · ``graph``, ``memory`` (last) · ``profile`` ·
``exit`` · ``untrained`` · ``disabled`` · ``warnings`` · ``accelerator`` whether the model or its batches were
on one · ``checkpoint_read`` whether it read one · ``world_size`` · ``rank`` · ``argv`` · ``python`` · ``env``
· ``process`` the whole process note.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from hotloop.measure.attribution import BASE, Bytes
from hotloop.measure.spans import Spans, Table, innermost
from hotloop.measure.stepping import Seen
from hotloop.measure.steps import DeviceUse, ModuleCost
from hotloop.phases import PHASES
from hotloop.record import rows as row
from hotloop.record.recording import Note, Process

_READ = 3  # ``obj`` of a SAVE row
HOST_DEVICES = ("cpu", "meta")
#: Kinds of notes of which later ones overlay what earlier ones say.
_MERGED: Final = (
    "torch", "anomaly", "autocast", "compile", "ddp", "graph", "memory", "profile", "exit", "untrained",
)  # fmt: skip


def facts_of(process: Process, spans: Spans) -> dict[str, Any]:
    """The merged facts of one process."""
    first = process.first("process")
    facts: dict[str, Any] = {
        "process": _plain(first),
        "modules": [_plain(note) for note in process.notes.get("module", ())],
        "optimizers": [_plain(note) for note in process.notes.get("optimizer", ())],
        "disabled": [_plain(note) for note in process.notes.get("disabled", ())],
        "warnings": [str(note.get("text", "")) for note in process.notes.get("warning", ())],
        "accelerator": _on_accelerator(process, spans),
        "rank": process.rank,
        "checkpoint_read": bool(((spans.kind == row.SAVE) & (spans.obj == _READ)).any()),
    }
    for key in ("world_size", "argv", "python", "env", "cwd", "local_rank"):
        if key in first:
            facts[key] = first[key]
    for kind in _MERGED:
        merged: Note = {}
        for note in process.notes.get(kind, ()):
            merged.update({k: v for k, v in _plain(note).items() if v is not None})
        if merged:
            facts[kind] = merged
    return facts


def _plain(note: Note) -> Note:
    return {key: value for key, value in note.items() if key != "note"}


def _on_accelerator(process: Process, spans: Spans) -> bool:
    """Whether a module lived on an accelerator, or tensors were shipped to one."""
    for note in process.notes.get("module", ()):
        devices = note.get("devices")
        names = devices if isinstance(devices, list | tuple | dict) else [devices] if devices else []
        if any(not str(name).startswith(HOST_DEVICES) for name in names):
            return True
    return bool(((spans.kind == row.TRANSFER) & (spans.obj == 1)).any())


# A window of steps in which modules were timed


def module_costs(process: Process, rows: Table) -> tuple[ModuleCost, ...]:
    """Shares by module name, the costliest first. A container's share holds its children's."""
    names = {int(n["id"]): n for n in process.notes.get("name", ()) if isinstance(n.get("id"), int)}
    if not len(rows) or not names:
        return ()
    backward = (rows.flags & row.MODULE_BACKWARD) != 0
    size = int(rows.obj.max()) + 1
    forward_s = np.bincount(rows.obj[~backward], weights=rows.duration[~backward], minlength=size)
    backward_s = np.bincount(rows.obj[backward], weights=rows.duration[backward], minlength=size)
    seen = [number for number in names if number < size and (forward_s[number] or backward_s[number])]
    if not seen:
        return ()
    outer = min(_whole(names[number].get("depth")) for number in seen)
    total_forward = sum(forward_s[n] for n in seen if _whole(names[n].get("depth")) == outer) or 1.0
    total_backward = float(backward_s.sum()) or 1.0
    costs = []
    for number in seen:
        note = names[number]
        outside = f"{note.get('name', '')}."  # the model's own name is empty
        below = [n for n in seen if outside == "." or f"{names[n].get('name', '')}.".startswith(outside)]
        costs.append(
            ModuleCost(
                name=str(note.get("name", "")),
                cls=str(note.get("class", "")),
                forward_share=float(min(1.0, forward_s[number] / total_forward)),
                backward_share=float(min(1.0, sum(backward_s[n] for n in below) / total_backward)),
                depth=_whole(note.get("depth")),
                num_params=_whole(note.get("num_params")),
            )
        )
    return tuple(sorted(costs, key=lambda c: -(c.forward_share + c.backward_share)))


def _whole(value: Any) -> int:
    return int(value) if isinstance(value, int | float) else 0


# What the device did in them


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
