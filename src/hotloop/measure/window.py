"""The module window: how forward and backward divide among submodules."""

from __future__ import annotations

from typing import Any

import numpy as np

from hotloop.measure.spans import Table
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
    outer = min(_whole(names[number].get("depth")) for number in seen)
    total_forward = sum(forward_s[n] for n in seen if _whole(names[n].get("depth")) == outer) or 1.0
    total_backward = float(backward_s.sum()) or 1.0
    costs = []
    for number in seen:
        note = names[number]
        took = rows.duration[~backward & (rows.obj == number)]
        below = [n for n in seen if _holds(str(note.get("name", "")), str(names[n].get("name", "")))]
        costs.append(
            ModuleCost(
                name=str(note.get("name", "")),
                cls=str(note.get("class", "")),
                forward_share=float(min(1.0, forward_s[number] / total_forward)),
                backward_share=float(min(1.0, sum(backward_s[n] for n in below) / total_backward)),
                depth=_whole(note.get("depth")),
                num_params=_whole(note.get("num_params")),
                forward_s=float(np.median(took) * len(took)) / 1e9 if len(took) else 0.0,
                own_calls=len(took) if len(below) == 1 else 0,
            )
        )
    return tuple(sorted(costs, key=lambda c: -(c.forward_share + c.backward_share)))


def _holds(outer: str, name: str) -> bool:
    """Whether a name lies below another; the model's own is empty."""
    return not outer or name == outer or name.startswith(outer + ".")


def _whole(value: Any) -> int:
    return int(value) if isinstance(value, int | float) else 0
