"""The tier behind the cache in memory: samples in an LMDB file on a local disk, for this run and later ones.

What is missing in memory is looked for here, then made. A sample is written here once memory is full (it will
not fit there), or at once if the disk has room for all of them: then the next run begins warm.

LMDB commits by writing pages before the page that names them, so a process killed at any moment costs at most
what it was writing. ``writemap`` stays off: with it a full disk is a SIGBUS. Nothing is forced to the disk on
the way; :meth:`DiskTier.sync` does that and notes how far it came: if the machine went down after more was
written, the file is thrown away.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
import threading
import warnings
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hotloop import units
from hotloop.feed.budget import named_bytes
from hotloop.feed.cache.errors import CacheError
from hotloop.feed.comparing import differences, snapshot
from hotloop.feed.layout import Encoded, Layout, encode, read

#: Of what is free on the disk, "auto" takes this share.
AUTO_SHARE = 0.5
#: Entries compared with fresh reads when a folder from an earlier run is opened.
NUM_CHECKED = 3

MAX_READERS = 1024
_LAYOUT_PREFIX = b"l"
_ITEM_PREFIX = b"i"
_DIGEST_BYTES = 16

#: File systems without the shared locks and mappings that LMDB stands on.
_REMOTE = ("nfs", "lustre", "gpfs", "cifs", "smb", "ceph", "beegfs", "9p", "fuse.sshfs", "afs")


class _Memory(Protocol):
    """What the tier wants to know of the cache before it."""

    @property
    def is_full(self) -> bool: ...


class DiskTier:
    """A map-style dataset: the samples of ``dataset``, read from the disk where they are there.

    Args:
        dataset: a map-style dataset whose samples are the same each time they are read.
        folder: a folder on a local disk; the file lies in a subfolder named after ``identity``.
        identity: bytes that say what the samples are.
        max_bytes: how large the file may become: bytes, ``"500GB"``, ``0.4`` or ``"40%"`` of what is free
            there, or ``"auto"``, half of that.
        memory: the cache before it; without one every sample is written.
        check: compare some samples of an earlier run with fresh ones, and begin anew if they differ.

    Every process opens the file for itself on first use, so forked, spawned and forkserver workers share it.

    Raises:
        CacheError: lmdb is not installed, the folder cannot be used, or it lies on a network file system.
    """

    def __init__(
        self,
        dataset: Any,
        folder: str | Path,
        identity: bytes,
        *,
        max_bytes: str | float | int = "auto",
        memory: _Memory | None = None,
        check: bool = True,
    ) -> None:
        _lmdb()
        self.dataset = dataset
        self.folder = Path(folder).absolute() / f"hotloop-{identity.hex()[:32]}"
        self.memory = memory
        _prepare(self.folder)
        self.max_bytes = _limit_bytes(self.folder, max_bytes)
        self._is_full = False
        self._holds_all: bool | None = None
        self._environment: _Environment | None = None
        _drop_unsynced(self.folder)
        if check:
            self._check()
        # Opened here only to look; every process opens its own.
        self._environment = None

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        found, sample = self._get(index)
        if not found:
            sample = self.dataset[index]
            self._offer(index, sample)
        return sample

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Many samples; those that are not here are read in one go where the dataset can."""
        samples = {index: self._get(index) for index in indices}
        missing = [index for index, (found, _) in samples.items() if not found]
        if missing and hasattr(self.dataset, "__getitems__"):
            made = self.dataset.__getitems__(missing)
        else:
            made = [self.dataset[index] for index in missing]
        for index, sample in zip(missing, made, strict=True):
            self._offer(index, sample)
            samples[index] = (True, sample)
        return [samples[index][1] for index in indices]

    def __contains__(self, index: int) -> bool:
        lmdb = _lmdb()
        try:
            with self._open().handle.begin() as transaction:
                return transaction.get(_item_key(index)) is not None
        except lmdb.Error:
            return False

    @property
    def num_items(self) -> int:
        """Samples on the disk."""
        with self._open().handle.begin() as transaction, transaction.cursor() as cursor:
            layouts = 0
            if cursor.set_range(_LAYOUT_PREFIX):
                layouts = sum(1 for _ in cursor.iternext(values=False))
            return int(transaction.stat()["entries"]) - layouts

    @property
    def num_bytes(self) -> int:
        """What the file takes on the disk; never more than ``max_bytes`` unless it was larger before."""
        return (self.folder / "data.mdb").stat().st_blocks * 512

    def sync(self) -> None:
        """Force what was written to the disk, so that it outlives the machine going down."""
        environment = self._open()
        last = environment.handle.info()["last_txnid"]
        if last != _synced(self.folder):
            environment.handle.sync(True)
            _note_synced(self.folder, last)

    def __str__(self) -> str:
        return (
            f"Disk {self.num_items} items; {units.size(self.num_bytes)} of {units.size(self.max_bytes)} "
            f"in {self.folder}"
        )

    # -- Reading and writing ---------------------------------------------------------------------------------

    def _get(self, index: int) -> tuple[bool, Any]:
        lmdb = _lmdb()
        environment = self._open()
        try:
            with environment.handle.begin(buffers=True) as transaction:
                value = transaction.get(_item_key(index))
                if value is None:
                    return False, None
                layout = environment.layout(transaction, bytes(value[:_DIGEST_BYTES]))
                # A private copy: the page may be reused as soon as the transaction ends.
                memory = np.frombuffer(value, np.uint8)[_DIGEST_BYTES:].copy()
        except lmdb.Error:
            return False, None
        if layout is None or memory.size != layout.num_bytes:
            return False, None
        return True, read(layout, memory, copy=False)

    def _offer(self, index: int, sample: Any) -> None:
        if self._is_full:
            return
        try:
            encoded = encode(sample)
        except Exception as error:  # whatever a user's object does when it is pickled
            self._is_full = True
            warnings.warn(f"sample {index} cannot be kept on disk: {error}", RuntimeWarning, stacklevel=3)
            return
        if self._wants(encoded):
            self._put(index, encoded)

    def _wants(self, encoded: Encoded) -> bool:
        """Everything, if the disk holds everything; else what memory has no more room for."""
        if self.memory is None:
            return True
        if self._holds_all is None:
            self._holds_all = (encoded.layout.num_bytes + 4096) * len(self.dataset) <= self.max_bytes
        return self._holds_all or self.memory.is_full

    def _put(self, index: int, encoded: Encoded) -> None:
        lmdb = _lmdb()
        environment = self._open()
        digest, described = _described(encoded.layout)
        value = np.zeros(_DIGEST_BYTES + encoded.layout.num_bytes, np.uint8)
        value[:_DIGEST_BYTES] = np.frombuffer(digest, np.uint8)
        for field, payload in zip(encoded.layout.fields, encoded.payloads, strict=True):
            start = _DIGEST_BYTES + field.offset
            value[start : start + field.num_bytes] = payload
        try:
            with environment.handle.begin(write=True) as transaction:
                transaction.put(_LAYOUT_PREFIX + digest, described, overwrite=False)
                transaction.put(_item_key(index), value.data, overwrite=False)
        except lmdb.Error as error:
            # Full by its bound or by the disk: what is there stays good, nothing more is written.
            self._is_full = True
            if not isinstance(error, lmdb.MapFullError):
                warnings.warn(f"the disk tier takes no more: {error}", RuntimeWarning, stacklevel=4)

    def _check(self) -> None:
        """Is what an earlier run left still what the dataset gives?"""
        for index in self._some_items():
            found, kept = self._get(index)
            if not found or not 0 <= index < len(self.dataset):
                continue
            lines = differences(snapshot(kept), snapshot(self.dataset[index]))
            if lines:
                warnings.warn(
                    f"{self.folder} is out of date and begun anew: sample {index} differs ({lines[0]})",
                    RuntimeWarning,
                    stacklevel=4,
                )
                self._environment = None
                _erase(self.folder)
                return

    def _some_items(self) -> list[int]:
        with self._open().handle.begin() as transaction, transaction.cursor() as cursor:
            found = []
            for wanted in np.linspace(0, max(len(self) - 1, 0), NUM_CHECKED, dtype=np.int64).tolist():
                if cursor.set_range(_item_key(wanted)) and cursor.key()[:1] == _ITEM_PREFIX:
                    found.append(int.from_bytes(cursor.key()[1:], "big"))
            return sorted(set(found))

    def _open(self) -> _Environment:
        environment = self._environment
        if environment is None or environment.pid != os.getpid():
            environment = self._environment = _environment(self.folder, self.max_bytes)
        return environment

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_environment": None}


class _Environment:
    """One process's opening of the file. LMDB allows one per process and file, and none across a fork."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.pid = os.getpid()
        self.handle = _lmdb().open(
            str(folder),
            map_size=max_bytes,
            max_readers=MAX_READERS,
            writemap=False,
            metasync=False,
            sync=False,
            max_spare_txns=4,
        )
        # What killed processes held open keeps old pages from being used again.
        self.handle.reader_check()
        self._layouts: dict[bytes, Layout] = {}

    def layout(self, transaction: Any, digest: bytes) -> Layout | None:
        """The layout of this digest, None where there is none."""
        known = self._layouts.get(digest)
        if known is None:
            described = transaction.get(_LAYOUT_PREFIX + digest)
            if described is None:
                return None
            known = self._layouts[digest] = pickle.loads(bytes(described))
        return known


_lock = threading.Lock()
_environments: weakref.WeakValueDictionary[tuple[int, str], _Environment] = weakref.WeakValueDictionary()
#: Inherited by a fork and never to be closed there: that would take the parent's locks along.
_inherited: list[_Environment] = []


def _environment(folder: Path, max_bytes: int) -> _Environment:
    with _lock:
        key = (os.getpid(), str(folder.resolve()))
        environment = _environments.get(key)
        if environment is None:
            environment = _environments[key] = _Environment(folder, max_bytes)
        return environment


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()
    _inherited.extend(_environments.values())


os.register_at_fork(after_in_child=_after_fork_in_child)


def _lmdb() -> Any:
    try:
        import lmdb
    except ImportError as error:
        raise CacheError("a disk tier needs lmdb", hint="pip install 'hotloop[lmdb]'") from error
    return lmdb


def _item_key(index: int) -> bytes:
    return _ITEM_PREFIX + index.to_bytes(8, "big")


def _described(layout: Layout) -> tuple[bytes, bytes]:
    described = pickle.dumps(layout, pickle.HIGHEST_PROTOCOL)
    return hashlib.blake2b(described, digest_size=_DIGEST_BYTES).digest(), described


# -- The folder ----------------------------------------------------------------------------------------------


def _prepare(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CacheError(f"no folder for the disk tier: {error}") from error
    kind = _file_system(folder)
    if kind.startswith(_REMOTE):
        raise CacheError(
            f"{folder} lies on {kind}: the disk tier needs a local file system",
            hint="take a folder on the machine's own disk, such as a scratch folder of the job",
        )


def _file_system(folder: Path) -> str:
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


def _limit_bytes(folder: Path, max_bytes: str | float | int) -> int:
    """The bound in bytes, whole pages; what the file has already counts as free."""
    have = sum(path.stat().st_blocks * 512 for path in folder.glob("*.mdb"))
    free = shutil.disk_usage(folder).free + have
    spec = AUTO_SHARE if max_bytes == "auto" else max_bytes
    limit = int(named_bytes(spec, lambda: free))
    return max(1 << 20, min(limit, free)) // 4096 * 4096


def _synced(folder: Path) -> int:
    """The last transaction known to be on the disk; -1 if none is."""
    try:
        return int(json.loads((folder / "synced.json").read_text())["last_txnid"])
    except (OSError, ValueError, KeyError):
        return -1


def _note_synced(folder: Path, last_txnid: int) -> None:
    temporary = folder / f"synced.{os.getpid()}.tmp"
    temporary.write_text(json.dumps({"last_txnid": last_txnid}))
    temporary.replace(folder / "synced.json")


def _drop_unsynced(folder: Path) -> None:
    """Begin anew if the machine went down after something was written that was never forced to the disk."""
    boot = _boot_id()
    marker = folder / "boot"
    try:
        written_under = marker.read_text()
    except OSError:
        written_under = boot
    if written_under != boot and (folder / "data.mdb").exists():
        environment = _environment(folder, 1 << 20)
        is_synced = environment.handle.info()["last_txnid"] == _synced(folder)
        del environment
        if not is_synced:
            _erase(folder)
    marker.write_text(boot)


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


def _erase(folder: Path) -> None:
    for name in ("data.mdb", "lock.mdb", "synced.json"):
        (folder / name).unlink(missing_ok=True)
