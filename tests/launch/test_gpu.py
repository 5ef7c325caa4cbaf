"""GPUs through a stand-in for the driver: NVML itself is not here. The columns are what the rules read."""

from __future__ import annotations

import re
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from hotloop.launch import system
from hotloop.launch.machine import Gpus


class NVMLError(Exception):
    pass


def driver(num_gpus: int, **answers: Any) -> ModuleType:
    """A module with the functions of pynvml that answer; the others raise NVMLError, like an old driver."""
    nvml = ModuleType("pynvml")
    known: dict[str, Any] = {
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: num_gpus,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda handle: "Test GPU",
        "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
        "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=80, memory=40),
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(used=2 << 30, total=8 << 30),
        "nvmlDeviceGetPowerUsage": lambda handle: 250_500,
        "nvmlDeviceGetClockInfo": lambda handle, kind: 1500 if kind == 1 else 900,
        **answers,
    }

    def unknown(*_: Any) -> Any:
        raise NVMLError("not supported")

    def __getattr__(name: str) -> Any:  # noqa: N807 - a module's own
        if name.startswith("nvml"):
            return unknown
        raise AttributeError(name)

    constants = {"NVML_CLOCK_SM": 1, "NVML_CLOCK_MEM": 2, "NVML_TEMPERATURE_GPU": 0}
    for name, value in {**known, **constants, "NVMLError": NVMLError}.items():
        setattr(nvml, name, value)
    nvml.__getattr__ = __getattr__  # type: ignore[method-assign]
    return nvml


def test_answers_become_columns_and_what_a_driver_does_not_know_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", driver(2))
    gpus = Gpus()
    sample = gpus.sample()
    assert sample["gpu1_util_ratio"] == 0.8
    assert sample["gpu1_memory_bytes"] == 2 << 30
    assert sample["gpu0_power_w"] == 250.5
    assert sample["gpu0_sm_clock_mhz"] == 1500
    assert "gpu0_temperature_c" not in sample
    (first, second) = gpus.facts()
    assert (first["name"], first["memory_bytes"], second["uuid"]) == ("Test GPU", 8 << 30, "GPU-1")
    assert "power_limit_w" not in first


def test_every_gpu_column_is_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", driver(1, nvmlDeviceGetTemperature=lambda handle, kind: 60))
    gpus = Gpus()
    names = {name.replace("gpu0_", "gpuN_") for _ in range(8) for name in gpus.sample()}
    assert names <= set(re.findall(r"``(gpuN_\w+)``", system.__doc__ or ""))


def test_without_a_driver_there_are_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise NVMLError("driver not loaded")

    monkeypatch.setitem(sys.modules, "pynvml", driver(2, nvmlInit=fails))
    gpus = Gpus()
    assert (gpus.facts(), gpus.sample()) == ([], {})
