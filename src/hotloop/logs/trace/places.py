"""Which function of the script was running, where the trace was recorded with ``with_stack=True``."""

from __future__ import annotations

import numpy as np

from hotloop.findings import Place
from hotloop.logs.trace.analysis import Analysis
from hotloop.logs.trace.table import place_of
from hotloop.logs.trace.timeline import nested
from hotloop.phases import COLUMN


def place_in(analysis: Analysis, phase: str) -> Place | None:
    """The script's innermost function during most of what a phase costs; None where half of it has none."""
    pieces = analysis.device.idle if analysis.device else analysis.host
    chosen = (pieces.phase == COLUMN[phase]) & (pieces.ns > 0)
    python = analysis.trace.python
    on_main = python.where(python.thread == analysis.main)
    if not len(on_main) or not chosen.any():
        return None
    innermost, _ = nested(on_main.start, on_main.end)
    event = innermost.at(pieces.at[chosen])
    label = np.where(event >= 0, on_main.label[event], len(analysis.trace.labels))
    cost = np.bincount(label, pieces.ns[chosen], minlength=len(analysis.trace.labels) + 1)
    found = None if cost[-1] > cost.sum() / 2 else place_of(analysis.trace.name(int(cost[:-1].argmax())))
    return Place(file=found[0], line=found[1], function=found[2]) if found else None
