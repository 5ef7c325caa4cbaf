"""What the cgroups of this process allow, v1 and v2: cores, memory, kills for want of memory; files of proc.

``root`` is where ``proc`` and ``sys`` are mounted; tests point it at folders of files in the kernel's own
format. Standard library only; runs in the user's process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path("/")

#: cgroup v1 says «no limit» with a number near 2^63.
_NO_LIMIT: Final = 1 << 60


def cpu_quota(root: Path = ROOT) -> float | None:
    """Cores' worth of time that the tightest of them grants, None without a limit."""
    return min((quota for folder in folders("cpu", root) if (quota := _quota(folder))), default=None)


def memory_limits(root: Path = ROOT) -> list[tuple[int, Path]]:
    """Every limit of memory in bytes, with the folder of its cgroup."""
    found = []
    for folder in folders("memory", root):
        for name in ("memory.max", "memory.high", "memory.limit_in_bytes"):
            text = read(folder / name)
            if text and text != "max" and int(text) < _NO_LIMIT:
                found.append((int(text), folder))
    return found


def memory() -> tuple[int, int] | None:
    """The tightest limit, and what its cgroup uses; None without a limit."""
    limit, folder = min(memory_limits(), default=(0, ROOT))
    return (limit, working_set(folder)) if limit else None


def working_set(folder: Path) -> int:
    """What a cgroup uses and cannot drop: all but inactive file pages (v1 sums children in ``total_*``)."""
    used = read(folder / "memory.current") or read(folder / "memory.usage_in_bytes") or "0"
    stat = dict(line.split(" ", 1) for line in read(folder / "memory.stat").splitlines())
    return max(0, int(used) - int(stat.get("total_inactive_file", stat.get("inactive_file", 0))))


def oom_kills(root: Path = ROOT) -> int | None:
    """Processes of this cgroup and below that the kernel has killed for want of memory, where it counts them.

    v1 counts each group by itself.
    """
    files = (folder / name for folder in folders("memory", root) for name in _EVENTS)
    return next((count for file in files if (count := killed(file)) is not None), None)


_EVENTS: Final = ("memory.events", "memory.oom_control")


def killed(file: Path) -> int | None:
    """The count of kills in a file of the kernel's."""
    words = read(file).split()
    return int(words[words.index("oom_kill") + 1]) if "oom_kill" in words else None


def folders(controller: str, root: Path = ROOT) -> list[Path]:
    """The folders of this process's cgroup and of all above it, of v2 and of v1's controller."""
    mount = root / "sys/fs/cgroup"
    found: list[Path] = []
    for line in read(root / "proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            roots = [mount, mount / "unified"]
        elif controller in controllers.split(","):
            roots = [mount / controllers, mount / controller]
        else:
            continue
        inside = Path(path.lstrip("/"))
        # Inside a container the path may name the host's tree; its own limits are then at the root.
        found += [top / part for top in roots for part in (inside, *inside.parents)]
    return list(dict.fromkeys(folder for folder in found if folder.is_dir()))


def read(path: Path) -> str:
    """The text of a file of the kernel, empty where it is missing or refuses."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def stat(pid: int) -> list[str]:
    """The fields of ``/proc/PID/stat`` behind the name; none of a process that is gone."""
    return read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()


def sizes(path: Path) -> dict[str, int]:
    """Bytes by name, of a file of ``proc`` that says them in kB."""
    pairs = (line.partition(":") for line in read(path).splitlines())
    known = ((name, value.removesuffix(" kB").strip()) for name, _, value in pairs if value.endswith(" kB"))
    return {name: int(size) * 1024 for name, size in known if size.isdecimal()}


def _quota(folder: Path) -> float | None:
    both = read(folder / "cpu.max").split()
    if len(both) == 2 and both[0] != "max":
        return int(both[0]) / int(both[1])
    quota, period = read(folder / "cpu.cfs_quota_us"), read(folder / "cpu.cfs_period_us")
    if quota and period and int(quota) > 0:
        return int(quota) / int(period)
    return None
