"""One step as it ran: the spans of the training loop, and the batches that workers made meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hotloop.measure.attribution import BASE
from hotloop.measure.steps import Steps
from hotloop.phases import COLUMN, PHASES
from hotloop.record import rows as row
from hotloop.record.recording import Process, durations_ns
from hotloop.report import words
from hotloop.report.perfetto import NO_SPAN, nested

#: Spans of one lane: the longest; a step with an evaluation has thousands.
_MAX_SPANS: Final = 250
_MAX_LANES: Final = 16
_MAX_DEPTH: Final = 6
_NAMES: Final = {"fetch": "next batch", "make": "make a batch", "slowest": "its slowest sample"}
#: Rows of a worker before a step, among which is what it was at when the step began.
_BEFORE: Final = 64


def waterfall(process: Process | None, steps: Steps | None) -> list[dict[str, Any]]:
    """A typical step and the slowest one, each ``{"kind", "step", "seconds", "lanes"}``; without those whose
    rows are missing.

    A lane has a ``label`` and ``spans``: ``[start_s, seconds, depth, phase, words]``, times from the step's
    start. The first is the training loop, the others are workers.
    """
    if process is None or steps is None or not steps.num_steps:
        return []
    seconds = steps.end_s - steps.start_s
    ordinary = np.flatnonzero(steps.steady & ~pauses(steps))
    chosen: dict[int, str] = {}
    if len(ordinary):
        middle = np.argsort(seconds[ordinary], kind="stable")[(len(ordinary) - 1) // 2]
        chosen[int(ordinary[middle])] = "typical"
    chosen.setdefault(int(np.argmax(seconds)), "slowest")
    found = [{"kind": kind, **_step(process, steps, index)} for index, kind in chosen.items()]
    return [one for one in found if one["lanes"]]


def pauses(steps: Steps) -> npt.NDArray[np.bool_]:
    """[n] whether a step holds an evaluation or a checkpoint."""
    return (steps.phase("evaluation") > 0) | (steps.phase("checkpoint") > 0)


def _step(process: Process, steps: Steps, index: int) -> dict[str, Any]:
    start_s, end_s = float(steps.start_s[index]), float(steps.end_s[index])
    origin = process.origin_ns
    window = origin + round(start_s * 1e9), origin + round(end_s * 1e9)
    evaluates = bool(steps.phases[index, COLUMN["evaluation"]] > 0)
    loop = _spans(process, window, inside=True, evaluates=evaluates)
    lanes = [{"label": "training loop", "spans": loop}] if loop else []
    for worker in process.workers if loop else ():
        if len(lanes) <= _MAX_LANES and (made := _spans(worker, window, inside=False)):
            number = int(worker.rows["obj"][worker.rows["kind"] == row.MAKE].max(initial=1)) - 1
            lanes.append({"label": f"worker {number}", "spans": made})
    return {"step": index, "seconds": end_s - start_s, "lanes": lanes}


def _spans(
    process: Process, window: tuple[int, int], *, inside: bool, evaluates: bool = False
) -> list[list[Any]]:
    """Those that begin in the window, or with ``inside`` False that reach into it, with their depth."""
    rows, begin = process.rows, window[0]
    first, last = np.searchsorted(rows["start"], window)
    taken = rows[first if inside else max(0, first - _BEFORE) : last]
    if not inside:
        taken = taken[taken["start"].astype(np.int64) + durations_ns(taken) > begin]
    taken = taken[~np.isin(taken["kind"], (*NO_SPAN, row.ORDER, row.CONTENT))]
    if len(taken) > _MAX_SPANS:
        taken = taken[np.sort(np.argsort(-durations_ns(taken), kind="stable")[:_MAX_SPANS])]
    cwd = process.first("process").get("cwd")
    return [
        [(start - begin) / 1e9, (end - start) / 1e9, depth, _phase(one, evaluates), _words(name, more, cwd)]
        for one, start, end, depth, name, more in nested(process, taken)
        if depth < _MAX_DEPTH
    ]


def _phase(one: Any, evaluates: bool) -> str:
    kind = int(one["kind"])
    if kind in (row.MAKE, row.COLLATE, row.SLOWEST):
        return "data_wait"
    if kind == row.MODULE:
        return "backward" if int(one["flags"]) & row.MODULE_BACKWARD else "forward"
    if kind == row.FORWARD and evaluates and not int(one["flags"]) & row.FORWARD_GRAD:
        return "evaluation"
    return PHASES[BASE[kind]]


def _words(name: str, more: Mapping[str, Any], cwd: str | None) -> str:
    name = _NAMES.get(name, name)
    samples = f", {more['samples']:,} samples" if more.get("samples") else ""
    return f"{name}{samples}" + (f" at {words.path(more['place'], cwd)}" if more.get("place") else "")
