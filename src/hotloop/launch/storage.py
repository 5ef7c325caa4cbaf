"""What kind of storage a path is on."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, Final

from hotloop.launch.mounts import mount_of, mounts

_NETWORK: Final = frozenset(
    {
        "nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "lustre", "gpfs", "beegfs", "glusterfs", "afs", "9p",
        "sshfs", "fuse.sshfs", "fuse.gcsfuse", "fuse.s3fs", "fuse.rclone", "fuse.glusterfs", "fuse.juicefs",
        "virtiofs", "wekafs", "daos", "orangefs",
    }
)  # fmt: skip
_MEMORY: Final = frozenset({"tmpfs", "ramfs", "devtmpfs"})


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
    return {True: "rotational", False: "ssd", None: "unknown"}[_flag(disk / "queue" / "rotational")]


def _disk(path: Path, device: str) -> Path | None:
    """The disk in ``/sys/block`` under a path, the first one below device-mapper and partitions."""
    number = path.stat().st_dev
    node = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not node.exists():
        # overlayfs and btrfs have a device number of their own
        node = Path("/sys/class/block") / Path(device).name
    if not device.startswith("/") and not node.exists():
        return None
    try:
        disk = node.resolve(strict=True)
    except OSError:
        return None
    for _ in range(8):
        below = sorted((disk / "slaves").iterdir()) if (disk / "slaves").is_dir() else []
        if below:
            disk = below[0].resolve()
        elif (disk / "partition").exists():
            disk = disk.parent
        else:
            break
    return disk


def _flag(path: Path) -> bool | None:
    try:
        return path.read_text(encoding="ascii").strip() == "1"
    except OSError:
        return None
