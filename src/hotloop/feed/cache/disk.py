"""The tier behind the cache in memory: a file a sample in a folder on a disk, for this run and later ones.

What is missing in memory is looked for here, then made. A sample is written here once memory is full (it will
not fit there), or at once if the disk has room for all of them: then the next run begins warm.

A file takes its name when it is complete, and begins with its checksum: a process killed at any moment, or a
machine that goes down, costs at most what was being written.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pickle
import shutil
import struct
import threading
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hotloop import units
from hotloop.feed.budget import named_bytes
from hotloop.feed.comparing import differences, snapshot
from hotloop.feed.errors import CacheError
from hotloop.feed.layout import ALIGNMENT, Encoded, Layout, encode, read, write
from hotloop.feed.memory import PAGE_BYTES, round_up

#: Entries compared with fresh reads when a folder from an earlier run is opened.
NUM_CHECKED = 3
#: Of what is free on the disk, "auto" takes this share.
AUTO_SHARE = 0.5
#: Samples in one folder.
_PER_FOLDER = 4096

_HEAD = struct.Struct("<II")  # checksum of the rest, bytes of the layout
_USED = struct.Struct("<q")


class _Memory(Protocol):
    """What the tier wants to know of the cache before it."""

    @property
    def is_full(self) -> bool: ...


class DiskTier:
    """A map-style dataset: the samples of ``dataset``, read from the disk where they are there.

    Args:
        dataset: a map-style dataset whose samples are the same each time they are read.
        folder: a folder on a local disk; the files lie in a subfolder named after ``identity``.
        identity: bytes that say what the samples are.
        max_bytes: what all files may take: bytes, ``"500GB"``, ``0.4`` or ``"40%"`` of what is free there, or
            ``"auto"``, half of that.
        memory: the cache before it; without one every sample is written.
        check: compare some samples of an earlier run with fresh ones, and begin anew if they differ.

    Any number of processes share it.

    Raises:
        CacheError: the folder cannot be used.
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
        self.dataset = dataset
        self.folder = Path(folder).absolute() / f"hotloop-{identity.hex()[:32]}"
        self.memory = memory
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._counted():
                pass
        except OSError as error:
            raise CacheError(f"no folder for the disk tier: {error}") from error
        free = shutil.disk_usage(self.folder).free + self.num_bytes
        self.max_bytes = min(
            int(named_bytes(AUTO_SHARE if max_bytes == "auto" else max_bytes, lambda: free)), free
        )
        self._is_full = self._has_warned = False
        self._holds_all: bool | None = None
        self._layouts: dict[bytes, Layout] = {}
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

    def __contains__(self, index: int) -> bool:
        return self._path(index).exists()

    @property
    def num_items(self) -> int:
        """Samples on the disk."""
        return len(self._items())

    @property
    def num_bytes(self) -> int:
        """What the files take on the disk, in whole pages."""
        with self._counted() as (_, used):
            return used

    def __str__(self) -> str:
        return (
            f"Disk {self.num_items} items; {units.size(self.num_bytes)} of {units.size(self.max_bytes)} "
            f"in {self.folder}"
        )

    def _knows(self, index: Any) -> bool:
        return isinstance(index, (int, np.integer)) and bool(0 <= index < len(self.dataset))

    def _path(self, index: int) -> Path:
        return self.folder / f"{index // _PER_FOLDER:05}" / str(int(index))

    def _items(self) -> list[int]:
        return sorted(int(path.name) for path in self.folder.glob("?????/*") if path.name.isdigit())

    def _get(self, index: int) -> tuple[bool, Any]:
        try:
            memory: NDArray[np.uint8] = np.fromfile(self._path(index), np.uint8)
        except OSError:
            return False, None
        if memory.size < _HEAD.size:
            return False, None
        crc, length = _HEAD.unpack_from(memory.data)
        start = round_up(_HEAD.size + length, ALIGNMENT)
        if zlib.crc32(memory[4:].data) != crc:
            return False, None  # the machine went down before it was on the disk
        described = memory[_HEAD.size : _HEAD.size + length].tobytes()
        layout = self._layouts.get(described)
        if layout is None:
            layout = self._layouts[described] = pickle.loads(described)
        return True, read(layout, memory[start:], copy=False)

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
            self._put(index, _packed(encoded))

    def _wants(self, encoded: Encoded) -> bool:
        """Everything, if the disk holds everything; else what memory has no more room for."""
        if self.memory is None:
            return True
        if self._holds_all is None:
            self._holds_all = (encoded.layout.num_bytes + PAGE_BYTES) * len(self.dataset) <= self.max_bytes
        return self._holds_all or self.memory.is_full

    def _put(self, index: int, data: NDArray[np.uint8]) -> None:
        path = self._path(index)
        temporary = path.with_name(f"{index}.{os.getpid()}.{threading.get_ident()}.tmp")
        try:
            with self._counted() as (descriptor, used):
                used += round_up(data.nbytes)
                if used > self.max_bytes:
                    self._is_full = True
                    return
                os.pwrite(descriptor, _USED.pack(used), 0)
            path.parent.mkdir(exist_ok=True)
            temporary.write_bytes(data.data)
            temporary.replace(path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            self._is_full = True  # what is there stays good, nothing more is written
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                warnings.warn(f"the disk tier takes no more: {error}", RuntimeWarning, stacklevel=4)

    @contextmanager
    def _counted(self) -> Iterator[tuple[int, int]]:
        """The file that counts the bytes of all others, locked, and its count."""
        descriptor = os.open(self.folder / "used", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            text = os.pread(descriptor, _USED.size, 0)
            yield descriptor, _USED.unpack(text)[0] if len(text) == _USED.size else 0
        finally:
            os.close(descriptor)

    def _check(self) -> None:
        """Is what an earlier run left still what the dataset gives?"""
        items = self._items()
        positions = np.linspace(0, len(items) - 1, min(NUM_CHECKED, len(items)), dtype=np.int64)
        for index in sorted({items[position] for position in positions.tolist()}):
            found, stored = self._get(index)
            if not found or not index < len(self.dataset):
                continue
            lines = differences(snapshot(stored), snapshot(self.dataset[index]))
            if lines:
                warnings.warn(
                    f"{self.folder} is out of date and begun anew: sample {index} differs ({lines[0]})",
                    RuntimeWarning,
                    stacklevel=3,
                )
                for path in self.folder.iterdir():
                    if path.is_dir():
                        shutil.rmtree(path, ignore_errors=True)
                with self._counted() as (descriptor, _):
                    os.pwrite(descriptor, _USED.pack(0), 0)
                return


def _packed(encoded: Encoded) -> NDArray[np.uint8]:
    """A sample as the bytes of its file."""
    described = pickle.dumps(encoded.layout, pickle.HIGHEST_PROTOCOL)
    start = round_up(_HEAD.size + len(described), ALIGNMENT)
    data = np.zeros(start + encoded.layout.num_bytes, np.uint8)
    data[_HEAD.size : _HEAD.size + len(described)] = np.frombuffer(described, np.uint8)
    write(encoded, data[start:])
    _HEAD.pack_into(data.data, 0, 0, len(described))
    struct.pack_into("<I", data.data, 0, zlib.crc32(data[4:].data))
    return data
