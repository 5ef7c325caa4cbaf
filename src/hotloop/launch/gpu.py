"""GPUs through NVML (nvidia-ml-py): facts once, samples while a run goes on. Without a driver there are none.

Facts of a GPU: index, uuid, name, memory_bytes, power_limit_w, power_limit_max_w, pcie_width, pcie_gen_max,
pcie_width_max, compute_capability, driver, visible (not hidden by CUDA_VISIBLE_DEVICES).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

#: Asks NVML about the GPU with this handle.
Question = Callable[[Any, Any], Any]


class Gpus:
    """The machine's GPUs; every question that a driver does not answer is left out of the answer."""

    def __init__(self) -> None:
        import pynvml

        self._nvml = pynvml
        self._handles: list[Any] = []
        with suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            numbers = range(pynvml.nvmlDeviceGetCount())
            self._handles = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in numbers]

    def _ask(self, question: Question, handle: Any) -> Any:
        try:
            return question(self._nvml, handle)
        except (self._nvml.NVMLError, AttributeError, OSError):
            return None

    def facts(self) -> list[dict[str, Any]]:
        """One dictionary per GPU, empty without a driver."""
        return [self._facts_of(index, handle) for index, handle in enumerate(self._handles)]

    def _facts_of(self, index: int, handle: Any) -> dict[str, Any]:
        known = {name: self._ask(question, handle) for name, question in _FACTS.items()}
        visible = is_visible(index, known["uuid"], os.environ.get("CUDA_VISIBLE_DEVICES"))
        found = {"index": index, **known, "visible": visible}
        return {name: value for name, value in found.items() if value is not None}

    def sample(self) -> dict[str, float]:
        """Columns ``gpuN_...`` of ``launch.system`` for this moment."""
        found: dict[str, float] = {}
        for index, handle in enumerate(self._handles):
            for name, question in _SAMPLES.items():
                value = self._ask(question, handle)
                if value is not None:
                    found[f"gpu{index}_{name}"] = float(value)
        return found


def is_visible(index: int, uuid: str | None, visible_devices: str | None) -> bool:
    """Whether CUDA_VISIBLE_DEVICES lets a run see a GPU; its entries are numbers or the starts of UUIDs."""
    if visible_devices is None:
        return True
    for entry in (part.strip() for part in visible_devices.split(",")):
        if entry == str(index) or (entry.startswith("GPU-") and uuid is not None and uuid.startswith(entry)):
            return True
        if not entry or entry == "-1":  # CUDA stops reading at the first invalid entry
            return False
    return False


_FACTS: Final[dict[str, Question]] = {
    "uuid": lambda nvml, gpu: nvml.nvmlDeviceGetUUID(gpu),
    "name": lambda nvml, gpu: nvml.nvmlDeviceGetName(gpu),
    "memory_bytes": lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).total,
    "power_limit_w": lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1e3,
    "power_limit_max_w": lambda nvml, gpu: nvml.nvmlDeviceGetPowerManagementLimitConstraints(gpu)[1] / 1e3,
    "pcie_width": lambda nvml, gpu: nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu),
    "pcie_gen_max": lambda nvml, gpu: nvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu),
    "pcie_width_max": lambda nvml, gpu: nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu),
    "compute_capability": lambda nvml, gpu: ".".join(map(str, nvml.nvmlDeviceGetCudaComputeCapability(gpu))),
    "driver": lambda nvml, _: nvml.nvmlSystemGetDriverVersion(),
}
_SAMPLES: Final[dict[str, Question]] = {
    "util_ratio": lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100,
    "memory_bytes": lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used,
    "memory_total_bytes": lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).total,
    "power_w": lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3,
    "power_limit_w": lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1e3,
    "sm_clock_mhz": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
    "temperature_c": lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
    "throttle_reasons": lambda nvml, gpu: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu),
}
