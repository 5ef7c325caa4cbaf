"""The tier behind the cache in memory: samples in an LMDB file on a local disk, for this run and later ones.

What is missing in memory is looked for here, then made. A sample is written here once memory is full (it will
not fit there), or at once if the disk has room for all of them: then the next run begins warm.

A process killed at any moment costs at most what it was writing. Nothing is forced to the disk on the way;
:meth:`DiskTier.sync` does that and notes how far it came: if the machine went down after more was written,
the file is thrown away.
"""

from __future__ import annotations

import hashlib
import pickle
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hotloop import units
from hotloop.feed.cache import disk_folder as folders
from hotloop.feed.cache.lmdb_file import LmdbFile, import_lmdb
from hotloop.feed.comparing import differences, snapshot
from hotloop.feed.layout import Encoded, Layout, encode, read, write

#: Entries compared with fresh reads when a folder from an earlier run is opened.
NUM_CHECKED = 3

_LAYOUT_PREFIX = b"l"
_ITEM_PREFIX = b"i"
_DIGEST_BYTES = 16


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

    Forked, spawned and forkserver workers share it.

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
        import_lmdb()
        self.dataset = dataset
        self.folder = Path(folder).absolute() / f"hotloop-{identity.hex()[:32]}"
        self.memory = memory
        folders.prepare(self.folder)
        self.max_bytes = folders.limit_bytes(self.folder, max_bytes)
        self._is_full = self._has_warned = False
        self._holds_all: bool | None = None
        self._layouts: dict[bytes, Layout] = {}
        self._file = LmdbFile.at(self.folder, self.max_bytes)
        folders.drop_unsynced(self._file)
        if check:
            self._check()

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        if not self._knows(index):
            return self.dataset[index]
        found, sample = self._get(index)
        if not found:
            sample = self.dataset[index]
            self._offer(index, sample)
        return sample

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Many samples; those that are not here are read in one go where the dataset can."""
        if not all(map(self._knows, indices)):
            return [self[index] for index in indices]
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

    def _knows(self, index: Any) -> bool:
        return isinstance(index, (int, np.integer)) and bool(0 <= index < len(self.dataset))

    def __contains__(self, index: int) -> bool:
        with self._file.transaction() as transaction:
            return transaction.get(_item_key(index)) is not None

    @property
    def num_items(self) -> int:
        """Samples on the disk."""
        with self._file.transaction() as transaction, transaction.cursor() as cursor:
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
        last = self._file.last_transaction()
        if last != folders.synced(self.folder):
            self._file.sync()
            folders.note_synced(self.folder, last)

    def __str__(self) -> str:
        return (
            f"Disk {self.num_items} items; {units.size(self.num_bytes)} of {units.size(self.max_bytes)} "
            f"in {self.folder}"
        )

    # -- Reading and writing ---------------------------------------------------------------------------------

    def _get(self, index: int) -> tuple[bool, Any]:
        try:
            with self._file.transaction() as transaction:
                value = transaction.get(_item_key(index))
                if value is None:
                    return False, None
                layout = self._layout(transaction, bytes(value[:_DIGEST_BYTES]))
                # A private copy: the page may be used again as soon as the transaction ends.
                memory = np.frombuffer(value, np.uint8)[_DIGEST_BYTES:].copy()
        except import_lmdb().Error:
            return False, None
        if layout is None or memory.size != layout.num_bytes:
            return False, None
        return True, read(layout, memory, copy=False)

    def _layout(self, transaction: Any, digest: bytes) -> Layout | None:
        known = self._layouts.get(digest)
        if known is None:
            described = transaction.get(_LAYOUT_PREFIX + digest)
            if described is None:
                return None
            known = self._layouts[digest] = pickle.loads(bytes(described))
        return known

    def _offer(self, index: int, sample: Any) -> None:
        if self._is_full:
            return
        try:
            encoded = encode(sample)
        except Exception as error:  # whatever a user's object does when it is pickled
            if not self._has_warned:
                self._has_warned = True
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
        lmdb = import_lmdb()
        digest, described = _described(encoded.layout)
        value = np.zeros(_DIGEST_BYTES + encoded.layout.num_bytes, np.uint8)
        value[:_DIGEST_BYTES] = np.frombuffer(digest, np.uint8)
        write(encoded, value[_DIGEST_BYTES:])
        try:
            with self._file.transaction(write=True) as transaction:
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
                    stacklevel=3,
                )
                self._file.close()
                folders.erase(self.folder)
                self._layouts.clear()
                return

    def _some_items(self) -> list[int]:
        with self._file.transaction() as transaction, transaction.cursor() as cursor:
            found = []
            for wanted in np.linspace(0, max(len(self) - 1, 0), NUM_CHECKED, dtype=np.int64).tolist():
                if cursor.set_range(_item_key(wanted)) and cursor.key()[:1] == _ITEM_PREFIX:
                    found.append(int.from_bytes(cursor.key()[1:], "big"))
            return sorted(set(found))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_file"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._file = LmdbFile.at(self.folder, self.max_bytes)


def _item_key(index: int) -> bytes:
    return _ITEM_PREFIX + int(index).to_bytes(8, "big")


def _described(layout: Layout) -> tuple[bytes, bytes]:
    described = pickle.dumps(layout, pickle.HIGHEST_PROTOCOL)
    return hashlib.blake2b(described, digest_size=_DIGEST_BYTES).digest(), described
