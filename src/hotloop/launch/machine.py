"""Facts about the machine that bear on a run's speed; what cannot be learned is left out. Never raises.

Keys of ``facts``: cores (usable: affinity and cgroup quota together, may be fractional), cpu_count,
cpu_model, ram_bytes, memory_limit_bytes (cgroup; absent without a limit), shm_bytes,
shm_free_bytes, open_files (of a process; absent without a limit), storage {path, kind, filesystem, device,
free_bytes} of the working folder, gpus (list, see ``launch.gpu``), oom_kills (while the command ran, see
``oom_kills``), kernel, os, python, hostname.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import psutil

from hotloop import cgroups
from hotloop.launch.gpu import Gpus
from hotloop.launch.mounts import storage


def facts(path: Path | None = None, *, with_gpus: bool = True) -> dict[str, Any]:
    """Everything known about this machine; ``path`` is where the data is (the working folder by default).

    Asking for GPUs may wake a driver, which takes up to seconds.
    """
    found: dict[str, Any] = {}
    for name, learn in _FACTS.items():
        value = _try(learn)
        if value is not None:
            found[name] = value
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
    for line in cgroups.read(Path("/proc/cpuinfo")).splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model", "cpu model"):
            return value.strip()
    return platform.processor() or None


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
