"""Which function of the script was running, where the trace was recorded with ``with_stack=True``."""

from __future__ import annotations

from typing import Final

import numpy as np

from hotloop.findings import Place
from hotloop.logs.trace.analysis import Analysis
from hotloop.logs.trace.table import place_of
from hotloop.logs.trace.timeline import nested
from hotloop.phases import COLUMN

#: The longest pieces are looked at, each in so many places.
_MAX_PIECES: Final = 1000
_SAMPLES: Final = 32


def place_in(analysis: Analysis, phase: str) -> Place | None:
    """The script's innermost function during most of what a phase costs; None where half of it has none."""
    pieces = analysis.device.idle if analysis.device else analysis.host
    python = analysis.trace.python
    on_main = python.where(python.thread == analysis.main)
    (chosen,) = np.nonzero((pieces.phase == COLUMN[phase]) & (pieces.ns > 0))
    if not len(on_main) or not len(chosen):
        return None
    longest = chosen[np.argsort(-pieces.ns[chosen])[:_MAX_PIECES]]
    within = (np.arange(_SAMPLES) + 0.5) / _SAMPLES
    times = pieces.at[longest, None] + (pieces.ns[longest, None] * within).astype(np.int64)
    innermost, _ = nested(on_main.start, on_main.end)
    event = innermost.at(times.ravel())
    nowhere = len(analysis.trace.labels)
    label = np.where(event >= 0, on_main.label[event], nowhere)
    cost = np.bincount(label, np.repeat(pieces.ns[longest], _SAMPLES), minlength=nowhere + 1)
    if cost[nowhere] > cost.sum() / 2:
        return None
    found = place_of(analysis.trace.name(int(cost[:nowhere].argmax())))
    return Place(file=found[0], line=found[1], function=found[2]) if found else None
