"""The mounted filesystems, which of them hold somebody's files, and on what kind of storage."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hotloop import cgroups

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
_NETWORK: Final = frozenset(
    {
        "nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "lustre", "gpfs", "beegfs", "glusterfs", "afs", "9p",
        "sshfs", "fuse.sshfs", "fuse.gcsfuse", "fuse.s3fs", "fuse.rclone", "fuse.glusterfs", "fuse.juicefs",
        "virtiofs", "wekafs", "daos", "orangefs",
    }
)  # fmt: skip
_MEMORY: Final = frozenset({"tmpfs", "ramfs", "devtmpfs"})
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


def storage(path: Path) -> dict[str, Any]:
    """Kind ("nvme", "ssd", "rotational", "virtual", "network", "tmpfs", "unknown"), filesystem, device and
    free space.

    "virtual" is a disk of a virtual machine: what is behind it cannot be told from inside. Raises OSError.
    """
    path = path.resolve()
    mount = mount_of(path, mounts())
    if mount is None:
        raise FileNotFoundError(f"no mount holds {path}")
    return {
        "path": str(path),
        "mount": str(mount.path),
        "kind": _kind(path, mount.source, mount.kind),
        "filesystem": mount.kind,
        "device": mount.source,
        "free_bytes": shutil.disk_usage(path).free,
    }


def _kind(path: Path, device: str, filesystem: str) -> str:
    if filesystem in _NETWORK:
        return "network"
    if filesystem in _MEMORY:
        return "tmpfs"
    disk = _disk(path, device)
    if disk is None:
        return "unknown"
    if disk.name.startswith("nvme"):
        return "nvme"
    if disk.name.startswith(("vd", "xvd")):
        return "virtual"
    return {"1": "rotational", "0": "ssd"}.get(cgroups.read(disk / "queue" / "rotational"), "unknown")


def _disk(path: Path, device: str) -> Path | None:
    """The disk or the device-mapper volume in ``/sys/block`` under a path."""
    number = path.stat().st_dev
    # overlayfs and btrfs have a device number of their own
    places = (f"dev/block/{os.major(number)}:{os.minor(number)}", f"class/block/{Path(device).name}")
    node = next((one for place in places if (one := Path("/sys", place)).exists()), None)
    disk = node.resolve() if node is not None else None
    return disk.parent if disk is not None and (disk / "partition").exists() else disk
