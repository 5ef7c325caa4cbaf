"""The machine's own counters as samples. Every source that a system lacks leaves its columns out."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import psutil

from hotloop.launch.machine import memory_used_bytes

_VMSTAT: Final = {
    "workingset_refault_file": "refaults",
    "workingset_refault": "refaults",  # before Linux 5.9
}
_PRESSURE: Final = ("cpu", "io", "memory")


class Host:
    """Turns counters into rates; the first sample has no rates."""

    def __init__(self) -> None:
        self._before: dict[str, float] = {}
        self._before_ns = 0

    def sample(self, now_ns: int) -> dict[str, float]:
        """The machine's columns of ``launch.system``, but for time and GPUs."""
        seconds = (now_ns - self._before_ns) / 1e9
        found = _memory()
        counters = _counters()
        if self._before_ns and seconds > 0:
            found |= self._rates(counters, seconds)
            found |= _cpu()
        else:
            _cpu()
        self._before, self._before_ns = counters, now_ns
        return found

    def _rates(self, counters: dict[str, float], seconds: float) -> dict[str, float]:
        """Of two counters of the same share, as of several disks, the larger one counts."""
        found: dict[str, float] = {}
        for name, value in counters.items():
            rate = max(0.0, value - self._before.get(name, value)) / seconds
            column, _, share_of = name.partition(":")
            if share_of:
                found[column] = max(found.get(column, 0.0), min(1.0, rate))
            else:
                found[f"{column}_per_s"] = rate
        return found


def _memory() -> dict[str, float]:
    memory, in_cgroup = psutil.virtual_memory(), memory_used_bytes()
    return ({} if in_cgroup is None else {"cgroup_working_set_bytes": in_cgroup}) | {
        "memory_available_bytes": memory.available,
        "memory_used_bytes": memory.total - memory.available,
        "page_cache_bytes": getattr(memory, "cached", 0),
        "shm_bytes": getattr(memory, "shared", 0),
        "swap_used_bytes": _swap_used(),
    }


def _swap_used() -> float:
    try:
        return float(psutil.swap_memory().used)
    except (OSError, RuntimeError):
        return 0.0


def _cpu() -> dict[str, float]:
    """Shares since the last call."""
    cpu = psutil.cpu_times_percent()
    iowait, steal = getattr(cpu, "iowait", 0.0), getattr(cpu, "steal", 0.0)
    busy = max(0.0, 100.0 - cpu.idle - iowait - steal)
    return {"cpu_ratio": busy / 100, "steal_ratio": steal / 100}


def _counters() -> dict[str, float]:
    found: dict[str, float] = {}
    disk = psutil.disk_io_counters()
    if disk is not None:
        found |= {"disk_read_bytes": disk.read_bytes, "disk_write_bytes": disk.write_bytes}
    for name, one in (psutil.disk_io_counters(perdisk=True) or {}).items():
        found[f"disk_busy_ratio:{name}"] = getattr(one, "busy_time", 0) / 1e3
    net = psutil.net_io_counters()
    if net is not None:
        found |= {"net_recv_bytes": net.bytes_recv, "net_sent_bytes": net.bytes_sent}
    return {**found, **_vmstat(), **_pressure()}


def _vmstat() -> dict[str, float]:
    found: dict[str, float] = {}
    for line in _lines(Path("/proc/vmstat")):
        name, _, value = line.partition(" ")
        if name in _VMSTAT:
            found[_VMSTAT[name]] = float(value)
    return found


def _pressure() -> dict[str, float]:
    found: dict[str, float] = {}
    for what in _PRESSURE:
        for line in _lines(Path(f"/proc/pressure/{what}")):
            if line.startswith("some "):
                found[f"{what}_pressure_ratio:some"] = float(line.rpartition("total=")[2]) / 1e6
    return found


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").splitlines()
    except OSError:
        return []
