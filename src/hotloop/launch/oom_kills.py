"""How often the kernel killed for want of memory: counters that tell afterwards what ended a process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hotloop.launch.machine import cgroup_folders


def oom_kills() -> dict[str, int]:
    """Kills so far: ``machine`` (all of it, since it started) and ``cgroup`` (this process's own, and below).

    What the kernel does not count is left out. cgroup v1 counts each group by itself.
    """
    found = {"machine": _counter(Path("/proc/vmstat"))}
    own = (
        folder / name
        for folder in cgroup_folders("memory")
        for name in ("memory.events", "memory.oom_control")
    )
    found["cgroup"] = next((count for path in own if (count := _counter(path)) is not None), None)
    return {name: count for name, count in found.items() if count is not None}


def since(before: Mapping[str, int]) -> dict[str, int]:
    """Kills since ``before`` was read, for what is still counted."""
    return {name: count - before[name] for name, count in oom_kills().items() if name in before}


def _counter(path: Path) -> int | None:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)
