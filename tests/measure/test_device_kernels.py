"""Kernel truth from the profiler window joins what the device's events said."""

from __future__ import annotations

import math
from typing import Any

from hotloop.measure.facts import with_kernels
from hotloop.measure.steps import DeviceUse
from hotloop.probe.observers.profile import summary


class Event:
    def __init__(self, name: str, start: float, end: float, device_type: str = "DeviceType.CUDA") -> None:
        self.name = name
        self.time_range = type("Range", (), {"start": start, "end": end})
        self.device_type = device_type


def profile() -> dict[str, Any]:
    # Two steps in 1000 us: kernels for 400 us, two gaps of 50 us between launches, the rest is one long gap.
    kernels = [
        Event("sm90_xmma_gemm_bf16bf16_tensorop", 0, 300),
        Event("vectorized_elementwise_kernel", 350, 400),
        Event("vectorized_elementwise_kernel", 450, 500),
        Event("aten::mm", 0, 900, "DeviceType.CPU"),
    ]
    return summary(kernels, 0.001, 2)


def test_a_window_of_kernels_is_summed_up() -> None:
    found = profile()
    assert math.isclose(found["device_busy_ratio"], 0.4)
    assert math.isclose(found["launch_gap_ratio"], 0.1)
    assert [row["count"] for row in found["kernels"]] == [1, 2]


def test_kernels_join_the_events_or_stand_alone() -> None:
    seen = DeviceUse(busy_ratio=0.5, idle_s_by_phase={"data_wait": 1.0})
    both = with_kernels(seen, profile())
    assert both is not None
    assert (both.busy_ratio, both.idle_s_by_phase) == (0.5, {"data_wait": 1.0})
    assert both.launch_bound_ratio is not None
    assert math.isclose(both.launch_bound_ratio, 0.1)
    alone = with_kernels(None, profile())
    assert alone is not None
    assert math.isclose(alone.busy_ratio, 0.4)


def test_without_kernels_nothing_changes() -> None:
    assert with_kernels(None, {}) is None
    assert with_kernels(None, {"kernels": [], "device_busy_ratio": None}) is None
