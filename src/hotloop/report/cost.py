"""What observing cost the run, estimated from what was recorded."""

from __future__ import annotations

from typing import Final

import numpy as np

from hotloop.measure.steps import Steps
from hotloop.record.recording import Process
from hotloop.record.rows import SAMPLE
from hotloop.record.spill import in_turn

#: Seconds per row and per stack sample, measured on a 0.4 ms step on 2 shared cores.
_ROW_S: Final = 2.2e-6
_SAMPLE_S: Final = 5.0e-6


def overhead_s_per_step(process: Process | None, steps: Steps | None) -> float | None:
    """Estimated seconds per step spent on observing in the training thread; None where no step was seen."""
    if process is None or steps is None or steps.num_steps == 0:
        return None
    num_samples = sum(int(np.count_nonzero(rows["kind"] == SAMPLE)) for rows in in_turn(process.rows))
    num_rows = len(process.rows) - num_samples
    return (num_rows * _ROW_S + num_samples * _SAMPLE_S) / steps.num_steps
