"""Facts about the machine that bear on a run's speed; what cannot be learned is left out. Never raises.

Keys of ``facts``: cores (usable: affinity and cgroup quota together, may be fractional), cpu_count,
cpu_model, ram_bytes, memory_limit_bytes (cgroup; absent without a limit), swap_bytes, shm_bytes,
shm_free_bytes, open_files (of a process; absent without a limit), storage {path, kind, filesystem, device,
free_bytes} of the working folder, gpus (list, see ``launch.gpu``), oom_kills (while the command ran, see
``oom_kills``), kernel, os, arch, python, hostname, container ("docker", "kubernetes", "podman", "lxc",
...; absent outside one), cpu_governor.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import psutil

from hotloop.launch.gpu import Gpus
from hotloop.launch.mounts import storage

_CGROUP: Final = Path("/sys/fs/cgroup")
#: cgroup v1 says «no limit» with a number near 2^63.
_NO_LIMIT: Final = 1 << 60


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
    try:
        cores = float(len(os.sched_getaffinity(0)))
    except (AttributeError, OSError):
        cores = float(os.cpu_count() or 1)
    quota = cpu_quota()
    return min(cores, quota) if quota else cores


def cpu_quota() -> float | None:
    """Cores' worth of time the cgroup grants, None without a limit."""
    limits = [limit for folder in cgroup_folders("cpu") if (limit := _quota_in(folder)) is not None]
    return min(limits, default=None)


def memory_limit_bytes() -> int | None:
    """The tightest memory limit of the cgroups this process is in, None without one."""
    return min((limit for limit, _ in _memory_limits()), default=None)


def memory_used_bytes() -> float | None:
    """What the cgroup with the tightest limit uses, without the page cache given back first."""
    try:
        _, usage = min(_memory_limits())
        sizes = dict(line.split(" ", 1) for line in _read(usage.parent / "memory.stat").splitlines())
        cached = float(sizes.get("total_inactive_file", sizes.get("inactive_file", 0.0)))  # v1 has both
        return max(0.0, float(_read(usage)) - cached)
    except ValueError:  # no limit, or nothing that tells
        return None


def _memory_limits() -> Iterator[tuple[int, Path]]:
    """Every memory limit of these cgroups, with the file that tells how much is used."""
    names = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
    for folder in cgroup_folders("memory"):
        for limit, usage in names:
            text = _read(folder / limit)
            if text and text != "max" and int(text) < _NO_LIMIT:
                yield int(text), folder / usage


def oom_kills() -> dict[str, int]:
    """How often the kernel killed for want of memory: on the machine, and in this process's cgroup and below.

    What it does not count is left out. cgroup v1 counts each group by itself.
    """
    own = (
        folder / name
        for folder in cgroup_folders("memory")
        for name in ("memory.events", "memory.oom_control")
    )
    found = {"machine": _killed(Path("/proc/vmstat"))}
    found["cgroup"] = next((count for path in own if (count := _killed(path)) is not None), None)
    return {name: count for name, count in found.items() if count is not None}


def oom_kills_since(before: Mapping[str, int]) -> dict[str, int]:
    """Kills since ``before`` was read, for what is still counted."""
    return {name: count - before[name] for name, count in oom_kills().items() if name in before}


def _killed(path: Path) -> int | None:
    lines = _read(path).splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)


def _quota_in(folder: Path) -> float | None:
    both = _read(folder / "cpu.max").split()
    if len(both) == 2 and both[0] != "max":
        return int(both[0]) / int(both[1])
    quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
    if quota and period and int(quota) > 0:
        return int(quota) / int(period)
    return None


def cgroup_folders(controller: str) -> list[Path]:
    """The folders of this process's cgroup and those above it, for v2 and for v1's controller."""
    folders: list[Path] = []
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            roots = [_CGROUP, _CGROUP / "unified"]
        elif controller in controllers.split(","):
            roots = [_CGROUP / controllers, _CGROUP / controller]
        else:
            continue
        inside = Path(path.lstrip("/"))
        # Inside a container the path names the host's tree; its own limits are then at the root.
        folders += [root / part for root in roots for part in (inside, *inside.parents)]
    return list(dict.fromkeys(folder for folder in folders if folder.is_dir()))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _cpu_model() -> str | None:
    for line in _read(Path("/proc/cpuinfo")).splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model", "cpu model"):
            return value.strip()
    return platform.processor() or None


def _container() -> str | None:
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    if Path("/.dockerenv").exists():
        return "docker"
    if Path("/run/.containerenv").exists():
        return "podman"
    text = _read(Path("/proc/1/cgroup"))
    known = ("docker", "kubepods", "containerd", "lxc", "libpod")
    found = next((name for name in known if name in text), None)
    return os.environ.get("container") or found  # noqa: SIM112


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
    "cpu_governor": lambda: _read(Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")) or None,
    "ram_bytes": lambda: psutil.virtual_memory().total,
    "memory_limit_bytes": memory_limit_bytes,
    "swap_bytes": lambda: psutil.swap_memory().total,
    "shm_bytes": lambda: _shm(0),
    "shm_free_bytes": lambda: _shm(2),
    "open_files": _open_files,
    "kernel": platform.release,
    "os": platform.system,
    "arch": platform.machine,
    "python": platform.python_version,
    "hostname": platform.node,
    "container": _container,
}
