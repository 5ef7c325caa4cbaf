"""GPUs through NVML (nvidia-ml-py): facts once, samples while a run goes on. Without a driver there are none.

Facts of a GPU: index, uuid, name, memory_bytes, power_limit_w, power_limit_max_w, pcie_gen, pcie_width,
pcie_gen_max, pcie_width_max, compute_capability, driver, sm_clock_max_mhz, visible (not hidden by
CUDA_VISIBLE_DEVICES).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

#: A PCIe counter takes 20 ms of waiting to read: one GPU and direction at a time, every this many samples.
_PCIE_EVERY: Final = 4


def facts() -> list[dict[str, Any]]:
    """One dictionary per GPU, empty without a driver."""
    return Gpus().facts()


class Gpus:
    """The machine's GPUs; every question that a driver does not answer is left out of the answer."""

    def __init__(self) -> None:
        self._nvml: ModuleType | None = None
        self._handles: list[Any] = []
        self._samples = 0
        self._pcie: dict[str, float] = {}
        self._start()

    def __len__(self) -> int:
        return len(self._handles)

    def _start(self) -> None:
        try:
            import pynvml
        except ImportError:
            return
        try:
            pynvml.nvmlInit()
            self._handles = [
                pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())
            ]
        except pynvml.NVMLError:
            return
        self._nvml = pynvml

    def _ask(self, question: Callable[[], Any]) -> Any:
        assert self._nvml is not None
        try:
            return question()
        except (self._nvml.NVMLError, AttributeError, OSError):
            return None

    def facts(self) -> list[dict[str, Any]]:
        """One dictionary per GPU."""
        return [self._facts_of(index, handle) for index, handle in enumerate(self._handles)]

    def _facts_of(self, index: int, handle: Any) -> dict[str, Any]:
        nvml = self._nvml
        assert nvml is not None
        uuid = self._ask(lambda: _text(nvml.nvmlDeviceGetUUID(handle)))
        found = {
            "index": index,
            "uuid": uuid,
            "name": self._ask(lambda: _text(nvml.nvmlDeviceGetName(handle))),
            "memory_bytes": self._ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total),
            "power_limit_w": self._ask(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3),
            "power_limit_max_w": self._ask(
                lambda: nvml.nvmlDeviceGetPowerManagementLimitConstraints(handle)[1] / 1e3
            ),
            "pcie_gen": self._ask(lambda: nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle)),
            "pcie_width": self._ask(lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(handle)),
            "pcie_gen_max": self._ask(lambda: nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)),
            "pcie_width_max": self._ask(lambda: nvml.nvmlDeviceGetMaxPcieLinkWidth(handle)),
            "compute_capability": self._ask(
                lambda: ".".join(map(str, nvml.nvmlDeviceGetCudaComputeCapability(handle)))
            ),
            "driver": self._ask(lambda: _text(nvml.nvmlSystemGetDriverVersion())),
            "sm_clock_max_mhz": self._ask(lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)),
            "visible": is_visible(index, uuid, os.environ.get("CUDA_VISIBLE_DEVICES")),
        }
        return {name: value for name, value in found.items() if value is not None}

    def sample(self) -> dict[str, float]:
        """Columns ``gpuN_...`` of ``launch.system`` for this moment; PCIe rates are the last ones read."""
        found: dict[str, float] = {}
        for index, handle in enumerate(self._handles):
            for name, value in self._sample_of(handle).items():
                found[f"gpu{index}_{name}"] = value
        if self._handles:
            self._sample_pcie()
        self._samples += 1
        return {**found, **self._pcie}

    def _sample_of(self, handle: Any) -> dict[str, float]:
        nvml = self._nvml
        assert nvml is not None
        use = self._ask(lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        memory = self._ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        found = {
            "util_ratio": use.gpu / 100 if use else None,
            "memory_util_ratio": use.memory / 100 if use else None,
            "memory_bytes": memory.used if memory else None,
            "power_w": self._ask(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3),
            "power_limit_w": self._ask(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3),
            "sm_clock_mhz": self._ask(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            "memory_clock_mhz": self._ask(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
            "temperature_c": self._ask(
                lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
            ),
            "throttle_reasons": self._ask(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
        }
        return {name: float(value) for name, value in found.items() if value is not None}

    def _sample_pcie(self) -> None:
        turn, due = divmod(self._samples, _PCIE_EVERY)
        if due:
            return
        nvml = self._nvml
        assert nvml is not None
        index, direction = divmod(turn % (2 * len(self._handles)), 2)
        counter = nvml.NVML_PCIE_UTIL_RX_BYTES if direction else nvml.NVML_PCIE_UTIL_TX_BYTES
        rate = self._ask(lambda: nvml.nvmlDeviceGetPcieThroughput(self._handles[index], counter))
        if rate is not None:
            self._pcie[f"gpu{index}_pcie_{'rx' if direction else 'tx'}_bytes_per_s"] = rate * 1024.0


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


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
