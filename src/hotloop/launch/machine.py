"""Facts about the machine that bear on a run's speed; what cannot be learned is left out. Never raises.

Keys of ``facts``: cores (usable: affinity and cgroup quota together, may be fractional), cpu_count,
cpu_model, ram_bytes, memory_limit_bytes (cgroup; absent without a limit), shm_bytes,
shm_free_bytes, open_files (of a process; absent without a limit), storage {path, kind, filesystem, device,
free_bytes} of the working folder, gpus (list, see ``launch.machine``), oom_kills (while the command ran, see
``oom_kills``), kernel, os, python, hostname.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil

from hotloop import cgroups
from hotloop.launch.mounts import storage


def facts(path: Path | None = None, *, with_gpus: bool = True) -> dict[str, Any]:
    """Everything known about this machine; ``path`` is where the data is (the working folder by default).

    Asking for GPUs may wake a driver, which takes up to seconds.
    """
    found = {name: value for name, learn in _FACTS.items() if (value := _try(learn)) is not None}
    found["storage"] = _try(lambda: storage(path or Path.cwd())) or {}
    if with_gpus:
        found["gpus"] = _try(lambda: Gpus().facts()) or []
    found.setdefault("cores", float(os.cpu_count() or 1))
    return found


def _try(learn: Callable[[], Any]) -> Any:
    try:
        return learn()
    except (OSError, ValueError, KeyError, IndexError, AttributeError, psutil.Error):
        return None


def usable_cores() -> float:
    """Cores this process and its children may use at once."""
    cores = float(len(os.sched_getaffinity(0)))
    return min(cores, cgroups.cpu_quota() or cores)


def oom_kills() -> dict[str, int]:
    """How often the kernel killed for want of memory: on the machine, and in this process's cgroup and below.

    What it does not count is left out.
    """
    found = {"machine": cgroups.killed(Path("/proc/vmstat")), "cgroup": cgroups.oom_kills()}
    return {name: count for name, count in found.items() if count is not None}


def oom_kills_since(before: Mapping[str, int]) -> dict[str, int]:
    """Kills since ``before`` was read, for what is still counted."""
    return {name: count - before[name] for name, count in oom_kills().items() if name in before}


def _cpu_model() -> str | None:
    pairs = (line.partition(":") for line in cgroups.read(Path("/proc/cpuinfo")).splitlines())
    known = (value for name, _, value in pairs if name.strip() in ("model name", "Model", "cpu model"))
    return next(known, platform.processor()).strip() or None


def _shm(index: int) -> int | None:
    path = Path("/dev/shm")
    return shutil.disk_usage(path)[index] if path.is_dir() else None


def _open_files() -> int | None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if most == resource.RLIM_INFINITY else most


_FACTS: Final[dict[str, Callable[[], Any]]] = {
    "cores": usable_cores,
    "cpu_count": os.cpu_count,
    "cpu_model": _cpu_model,
    "ram_bytes": lambda: psutil.virtual_memory().total,
    "memory_limit_bytes": lambda: (cgroups.memory() or (None,))[0],
    "shm_bytes": lambda: _shm(0),
    "shm_free_bytes": lambda: _shm(2),
    "open_files": _open_files,
    "kernel": platform.release,
    "os": platform.system,
    "python": platform.python_version,
    "hostname": platform.node,
}


#: Asks NVML about the GPU with this handle.
Question = Callable[[Any, Any], Any]


class Gpus:
    """The machine's GPUs, through NVML: none without a driver; what it does not answer is left out."""

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
        known = {name: self._ask(question, handle) for name, question in _GPU_FACTS.items()}
        visible = is_visible(index, known["uuid"], os.environ.get("CUDA_VISIBLE_DEVICES"))
        found = {"index": index, **known, "visible": visible}
        return {name: value for name, value in found.items() if value is not None}

    def sample(self) -> dict[str, float]:
        """Columns ``gpuN_...`` of ``launch.system`` for this moment."""
        found: dict[str, float] = {}
        for index, handle in enumerate(self._handles):
            for name, question in _GPU_SAMPLES.items():
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


_GPU_FACTS: Final[dict[str, Question]] = {
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
_GPU_SAMPLES: Final[dict[str, Question]] = {
    "util_ratio": lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100,
    "memory_bytes": lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used,
    "memory_total_bytes": lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).total,
    "power_w": lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3,
    "power_limit_w": lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1e3,
    "sm_clock_mhz": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
    "temperature_c": lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
    "throttle_reasons": lambda nvml, gpu: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu),
}
