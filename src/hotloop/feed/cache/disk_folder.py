"""The folder of the disk tier: where it may lie, how large it may become, whether its file can be trusted."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from hotloop.feed.budget import named_bytes
from hotloop.feed.cache.lmdb_file import LmdbFile
from hotloop.feed.errors import CacheError

#: Of what is free on the disk, "auto" takes this share.
AUTO_SHARE = 0.5

#: File systems without the shared locks and mappings that LMDB stands on.
_REMOTE = ("nfs", "lustre", "gpfs", "cifs", "smb", "ceph", "beegfs", "9p", "fuse.sshfs", "afs")


def prepare(folder: Path) -> None:
    """Make the folder.

    Raises:
        CacheError: it cannot be made, or lies on a network file system.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CacheError(f"no folder for the disk tier: {error}") from error
    kind = file_system(folder)
    if kind.startswith(_REMOTE):
        raise CacheError(
            f"{folder} lies on {kind}: the disk tier needs a local file system",
            hint="take a folder on the machine's own disk, such as a scratch folder of the job",
        )


def file_system(folder: Path) -> str:
    """The type of the file system a folder lies on, as the kernel names it; empty if it does not say."""
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return ""
    path, best, kind = str(folder.resolve()), -1, ""
    for line in lines:
        fields, _, rest = line.partition(" - ")
        mount = fields.split()[4].encode().decode("unicode_escape")
        if (path + "/").startswith(mount.rstrip("/") + "/") and len(mount) >= best:
            best, kind = len(mount), rest.split()[0]
    return kind


def limit_bytes(folder: Path, max_bytes: str | float | int) -> int:
    """The bound in bytes, whole pages; what the file has already counts as free."""
    have = sum(path.stat().st_blocks * 512 for path in folder.glob("*.mdb"))
    free = shutil.disk_usage(folder).free + have
    spec = AUTO_SHARE if max_bytes == "auto" else max_bytes
    limit = int(named_bytes(spec, lambda: free))
    return max(1 << 20, min(limit, free)) // 4096 * 4096


def synced(folder: Path) -> int:
    """The last transaction known to be on the disk; -1 if none is."""
    try:
        return int(json.loads((folder / "synced.json").read_text())["last_txnid"])
    except (OSError, ValueError, KeyError):
        return -1


def note_synced(folder: Path, last_txnid: int) -> None:
    """Note that everything up to this transaction is on the disk."""
    temporary = folder / f"synced.{os.getpid()}.tmp"
    temporary.write_text(json.dumps({"last_txnid": last_txnid}))
    temporary.replace(folder / "synced.json")


def drop_unsynced(file: LmdbFile) -> None:
    """Begin anew if the machine went down after something was written that was never forced to the disk."""
    boot = _boot_id()
    marker = file.folder / "boot"
    try:
        written_under = marker.read_text()
    except OSError:
        written_under = boot
    if written_under != boot and (file.folder / "data.mdb").exists():
        is_synced = file.last_transaction() == synced(file.folder)
        file.close()
        if not is_synced:
            erase(file.folder)
    marker.write_text(boot)


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


def erase(folder: Path) -> None:
    """Delete the file; who has it open keeps using what is no longer there."""
    for name in ("data.mdb", "lock.mdb", "synced.json"):
        (folder / name).unlink(missing_ok=True)
