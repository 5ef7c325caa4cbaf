"""The mounted filesystems, which of them hold somebody's files, and on what kind of storage."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

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


# A command within other mounts


REFUSED = 125

_NEWNS, _NEWUSER = 0x00020000, 0x10000000
_PR_SET_PDEATHSIG = 1
_RDONLY, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 32, 4096, 16384, 1 << 18


def main() -> NoReturn:
    """Set up, then become the command."""
    command = sys.argv[2:]
    try:
        _enter(json.loads(Path(sys.argv[1]).read_text()))
    except OSError as error:
        sys.stderr.write(f"{error.filename}: {error.strerror}\n")
        raise SystemExit(REFUSED) from None
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these two; what it becomes should not
        signal.signal(number, signal.SIG_DFL)
    _become(command)


def _enter(plan: dict[str, Any]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)

    def call(what: str, result: int) -> None:
        if result:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), what)

    def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
        words = [None if word is None else os.fsencode(word) for word in (source, target, kind, data)]
        what = f"{kind or 'mount'} on {target}"
        call(what, libc.mount(*words[:3], ctypes.c_ulong(flags), words[3]))

    alone = bool(libc.unshare(_NEWNS))
    if alone:  # only root may: as the owner of a user namespace everybody may, where the system allows those
        user, group = os.getuid(), os.getgid()
        call("unshare", libc.unshare(_NEWUSER | _NEWNS))
        maps = {"setgroups": "deny", "uid_map": f"{user} {user} 1", "gid_map": f"{group} {group} 1"}
        for name, text in maps.items():
            Path(f"/proc/self/{name}").write_text(text)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # whoever threw it away is gone: so is this
    mount(None, "/", None, _REC | _PRIVATE)
    here = Path.cwd()
    # Once covered, a folder can only be reached through what was opened before.
    kept = [(path, handle) for path in plan["kept"] if (handle := _open(path)) is not None]
    layers = [(layer, handle) for layer in plan["layers"] if (handle := _open(layer[0])) is not None]
    for (path, upper, work, flags, needed), handle in layers:
        below = f"/proc/self/fd/{handle}"
        data = f"lowerdir={below},upperdir={_escaped(upper)},workdir={_escaped(work)}"
        try:
            mount("overlay", path, "overlay", 0, f"{data},{'userxattr' if alone else 'redirect_dir=on'}")
        except OSError:
            if not os.path.lexists(path):
                continue
            if needed:
                raise
            mount(below, path, None, _BIND | _REC)
            mount(None, path, None, _REMOUNT | _BIND | _RDONLY | flags)
    for path, handle in kept:
        mount(f"/proc/self/fd/{handle}", path, None, _BIND | _REC)
    for path, flags in plan["frozen"]:
        mount(None, path, None, _REMOUNT | _BIND | _RDONLY | flags)
    for _, handle in (*kept, *layers):
        os.close(handle)
    os.chdir(here)  # the same folder, now through what covers it


def _open(path: str) -> int | None:
    """A handle on a folder; None where it went since the plan was made."""
    try:
        return os.open(path, os.O_PATH)
    except FileNotFoundError:
        return None


def _escaped(path: str) -> str:
    return path.replace("\\", "\\\\").replace(",", "\\,").replace(":", "\\:")


def _become(command: Sequence[str]) -> NoReturn:
    try:
        os.execvp(command[0], list(command))
    except OSError as error:
        sys.stderr.write(f"hotloop: cannot run {command[0]}: {error.strerror}\n")
        raise SystemExit(127) from None


if __name__ == "__main__":
    main()
