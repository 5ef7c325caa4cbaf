"""The mounted filesystems, and which of them hold somebody's files."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: Filesystems that hold no files of anybody.
_PSEUDO: Final = frozenset(
    {
        "autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs",
        "efivarfs", "fusectl", "hugetlbfs", "mqueue", "nsfs", "proc", "pstore", "rpc_pipefs", "securityfs",
        "selinuxfs", "sysfs", "tracefs",
    }
)  # fmt: skip
#: Mount points of what lives as long as the machine is up. What is mounted below them is not: disks are.
_VOLATILE: Final = frozenset(map(Path, ("/dev", "/dev/shm", "/run", "/run/lock", "/run/shm", "/run/user")))
_FLAGS: Final = {
    "nosuid": 2,
    "nodev": 4,
    "noexec": 8,
    "noatime": 1024,
    "nodiratime": 2048,
    "relatime": 1 << 21,
}


@dataclass(frozen=True, kw_only=True)
class Mount:
    """One mount point; ``flags`` are those of mount(2)."""

    path: Path
    kind: str
    source: str
    flags: int
    writable: bool

    @property
    def holds_files(self) -> bool:
        """Whether somebody's files may be written there."""
        volatile = self.path in _VOLATILE or self.path.parent == Path("/run/user")
        kernel = self.path.is_relative_to("/proc") or self.path.is_relative_to("/sys")
        return self.writable and self.kind not in _PSEUDO and not volatile and not kernel


def mounts(text: str | None = None) -> list[Mount]:
    """The mounts of ``/proc/self/mountinfo`` that can be reached, outer ones first, one for each place.

    Raises OSError.
    """
    text = Path("/proc/self/mountinfo").read_text(errors="replace") if text is None else text
    found: dict[Path, Mount] = {}
    for line in text.splitlines():
        fields, _, rest = line.partition(" - ")
        words = fields.split(" ")
        path = Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), words[4]))
        options = words[5].split(",")
        kind, source, above = rest.split(" ")[:3]
        found[path] = Mount(
            path=path,
            kind=kind,
            source=source,
            flags=sum(_FLAGS.get(option, 0) for option in options),
            writable="rw" in options and "ro" not in above.split(","),
        )
    return [found[path] for path in sorted(found) if _reachable(path)]


def mount_of(path: Path, known: Sequence[Mount]) -> Mount | None:
    """The mount that a path lies in."""
    around = [mount for mount in known if path.is_relative_to(mount.path)]
    return max(around, key=lambda mount: len(mount.path.parts), default=None)


def _reachable(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_PATH))
    except OSError:
        return False
    return True
