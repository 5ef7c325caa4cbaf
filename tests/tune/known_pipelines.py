"""Pipelines with a known truth: constant times, cores that suffice, nothing between epochs."""

from __future__ import annotations

from typing import Any

import numpy as np

from hotloop.model import Pipeline, Setup
from hotloop.model.pipeline import EpochCost, Memory

MIB = 2**20


def pipeline(
    make_s: Any = 0.040, step_s: Any = 0.010, *, recorded: Setup | None = None, **fields: Any
) -> Pipeline:
    """One worker, two batches ahead, endless epochs, unless said otherwise."""
    had = {"num_workers": 1, "prefetch_factor": 2, "persistent_workers": False, "in_order": True}
    given = {
        name: value for name, value in vars(recorded or Setup()).items() if name in had and value is not None
    }
    return Pipeline(
        **{
            "make_s": np.atleast_1d(np.asarray(make_s, float)),
            "step_s": np.atleast_1d(np.asarray(step_s, float)),
            "ship_s": 0.0,
            "make_cores": 0.0,
            "step_cores": 0.0,
            "collate_s": 0.0,
            "receive_s": 0.0,
            "latency_s": 0.0,
            "overhead_s": 0.0,
            "epoch": EpochCost(start_s=0.0, worker_start_s=0.0, wake_s=0.0, stop_s=0.0),
            "batch_samples": 8.0,
            "num_samples": 8000,
            "recorded": Setup(cores=4.0, ranks=1, **{**had, **given}),
            "measured_s": 0.040,
            "memory": Memory(
                main_bytes=300 * MIB, worker_bytes=50 * MIB, batch_bytes=10 * MIB, measured=True
            ),
            **fields,
        }
    )
