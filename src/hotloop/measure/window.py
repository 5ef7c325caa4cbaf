"""The module window: how forward and backward divide among submodules."""

from __future__ import annotations

from typing import Any

import numpy as np

from hotloop.measure.spans import Ints, Table
from hotloop.measure.steps import ModuleCost
from hotloop.record import rows as row
from hotloop.record.recording import Process


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
    roots = {str(names[n].get("name", "")) for n in seen if not _whole(names[n].get("depth"))}
    outer = min(_whole(names[number].get("depth")) for number in seen)
    total_forward = sum(forward_s[n] for n in seen if _whole(names[n].get("depth")) == outer) or 1.0
    total_backward = float(backward_s.sum()) or 1.0
    calls = np.bincount(rows.obj[~backward], minlength=size)
    outermost = [number for number in seen if not _whole(names[number].get("depth"))]
    costs = []
    for number in seen:
        note = names[number]
        below = [n for n in seen if _holds(str(note.get("name", "")), str(names[n].get("name", "")), roots)]
        around = [
            n for n in outermost if _holds(str(names[n].get("name", "")), str(note.get("name", "")), roots)
        ]
        costs.append(
            ModuleCost(
                name=str(note.get("name", "")),
                cls=str(note.get("class", "")),
                forward_share=float(min(1.0, forward_s[number] / total_forward)),
                backward_share=float(min(1.0, sum(backward_s[n] for n in below) / total_backward)),
                depth=_whole(note.get("depth")),
                num_params=_whole(note.get("num_params")),
                out_dtype=str(note.get("out_dtype") or ""),
                calls=float(calls[number] / max(1, calls[around[0]])) if around else 0.0,
                call_s=_median_s(rows.duration[~backward & (rows.obj == number)]),
            )
        )
    return tuple(sorted(costs, key=lambda c: -(c.forward_share + c.backward_share)))


def _holds(outer: str, name: str, roots: set[str]) -> bool:
    """Whether a name lies below another; the first model's own name is empty, others' are not."""
    if not outer:
        return name == outer or name.split(".")[0] not in roots
    return name == outer or name.startswith(outer + ".")


def _whole(value: Any) -> int:
    return int(value) if isinstance(value, int | float) else 0


def _median_s(durations: Ints) -> float:
    """On a crowded machine a few calls wait for a core, and the mean is theirs."""
    return float(np.median(durations)) / 1e9 if len(durations) else 0.0
