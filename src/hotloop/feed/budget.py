"""How many cores and how much memory this process may use: affinity, cgroups v1 and v2, limits, what is free.

Every figure is read again at each call. ``root`` is where ``proc`` and ``sys`` are mounted; tests point it at
folders of files in the kernel's own format.
"""

from __future__ import annotations

import math
import os
import re
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hotloop import cgroups
from hotloop.cgroups import ROOT

_UNITS: Final = {
    "": 1, "B": 1,
    "K": 10**3, "KB": 10**3, "M": 10**6, "MB": 10**6, "G": 10**9, "GB": 10**9, "T": 10**12, "TB": 10**12,
    "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40,
}  # fmt: skip
_SIZE: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]*)")
_PERCENT: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*%")


def local_world_size() -> int:
    """Processes of this job on this machine, as torchrun tells (``LOCAL_WORLD_SIZE``); 1 without it."""
    text = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, int(text)) if text.isdigit() else 1


def usable_cores(*, world: int | None = None, root: Path = ROOT) -> float:
    """Cores' worth of time for this process and its workers: affinity and cgroup quota, shared by ``world``.

    ``world`` is the number of processes that share the machine (default: ``LOCAL_WORLD_SIZE``). May be a
    fraction, and below 1. A rank that its launcher pinned to cores of its own is not divided twice.
    """
    ranks = world or local_world_size()
    own, whole = _affinity()
    quota = cgroups.cpu_quota(root) or math.inf
    return min(own, max(own, whole) / ranks, quota / ranks)


def total_memory_bytes(*, root: Path = ROOT) -> int:
    """Memory there is at all: the machine's, or the tightest cgroup limit."""
    return min([_machine_memory("MemTotal", root), *(limit for limit, _ in cgroups.memory_limits(root))])


def usable_memory_bytes(*, root: Path = ROOT) -> int:
    """Memory that could still be taken: what is available, within cgroup limits, RLIMIT_AS and RLIMIT_DATA.

    A cgroup's inactive file pages count as free: the kernel drops them first.
    """
    room = [_machine_memory("MemAvailable", root)]
    room += [limit - cgroups.working_set(folder) for limit, folder in cgroups.memory_limits(root)]
    used = cgroups.sizes(root / "proc/self/status")
    for kind, name in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        if (limit := resource.getrlimit(kind)[0]) != resource.RLIM_INFINITY:
            room.append(limit - used.get(name, 0))
    return max(0, min(room))


def headroom_bytes(*, root: Path = ROOT) -> int:
    """What must stay free of this machine's memory for everything else, see :func:`headroom_of`."""
    return headroom_of(total_memory_bytes(root=root))


def headroom_of(total_bytes: int) -> int:
    """A tenth of a machine's memory, at least 512 MiB or a quarter of it."""
    return max(total_bytes // 10, min(512 << 20, total_bytes // 4))


def memory_budget(spec: str | float | int | None, *, world: int | None = None, root: Path = ROOT) -> int:
    """Bytes that ``spec`` asks for on this machine, one of ``world`` equal parts (default: not divided).

    ``"50GB"`` is 50 x 10^9, ``"50GiB"`` 50 x 2^30, an int is bytes, a float up to 1 or ``"40%"`` is a share
    of :func:`usable_memory_bytes`. ``"auto"`` and None take half of what is usable, and never the last
    :func:`headroom_bytes`: the other half is for the model, the loader and the page cache. A size is a
    ceiling: more than the machine or its cgroup holds comes down to that less the headroom.

    Raises:
        ValueError: not a size, or not positive.
    """
    headroom = headroom_bytes(root=root)
    if spec is None or spec == "auto":
        usable = usable_memory_bytes(root=root)
        asked: float = max(0, min(usable // 2, usable - headroom))
    else:
        asked = named_bytes(spec, lambda: usable_memory_bytes(root=root))
    return int(min(asked, total_memory_bytes(root=root) - headroom)) // (world or 1)


def memory_is_short(*, root: Path = ROOT) -> bool:
    """Whether less than the headroom is left. Costs some small reads of ``/proc`` and ``/sys``."""
    return usable_memory_bytes(root=root) < headroom_bytes(root=root)


def named_bytes(spec: str | float | int, whole: Callable[[], int]) -> float:
    """Bytes that a size (``"50GB"``, ``"50GiB"``, a number) or a share of ``whole()`` (0.4, ``"40%"``) names.

    Raises:
        ValueError: neither, or not positive.
    """
    if isinstance(spec, str):
        if percent := _PERCENT.fullmatch(spec.strip()):
            return _share(float(percent[1]) / 100, spec, whole)
        size = _SIZE.fullmatch(spec.strip())
        if size is None or size[2].upper() not in _UNITS:
            raise ValueError(
                f'memory budget {spec!r} is not a size: write "50GB", "50GiB", "40%", "auto", or bytes'
            )
        return _positive(float(size[1]) * _UNITS[size[2].upper()], spec)
    if isinstance(spec, bool):
        raise ValueError(f"memory budget {spec!r} is not a size")
    if isinstance(spec, float) and spec <= 1:
        return _share(spec, spec, whole)
    return _positive(float(spec), spec)


def _share(fraction: float, spec: object, whole: Callable[[], int]) -> float:
    if not 0 < fraction <= 1:
        raise ValueError(f"memory budget {spec!r}: a share lies above 0 and is at most 1")
    return fraction * whole()


def _positive(num_bytes: float, spec: object) -> float:
    if not 1 <= num_bytes < math.inf:
        raise ValueError(f"memory budget {spec!r} must be at least one byte, and finite")
    return num_bytes


def _affinity() -> tuple[float, float]:
    """Cores this process may run on, and those that the process that started it may run on."""
    try:
        own = len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        own = os.cpu_count() or 1
        return float(own), float(own)
    try:
        return float(own), float(len(os.sched_getaffinity(os.getppid())))
    except OSError:
        return float(own), float(own)


def _machine_memory(name: str, root: Path) -> int:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return cgroups.sizes(root / "proc/meminfo").get(name, pages if name == "MemTotal" else pages // 2)
