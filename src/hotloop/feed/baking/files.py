"""The mapped files of a bake: rows and records, looked at before they are believed."""

from __future__ import annotations

import os
import resource
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hotloop.feed.baking.checks import checksums, tables
from hotloop.feed.baking.manifest import Manifest, damaged
from hotloop.feed.memory import Mapping

Bytes = NDArray[np.uint8]
Rows = NDArray[np.int64]

NOTHING = np.empty(0, np.uint8)


class Files:
    """Read-only maps of all files of a bake. No descriptor stays open; the maps outlive a replaced bake.

    With ``checked`` a sample is compared with its checksum when it is first asked for.
    """

    def __init__(self, folder: Path, manifest: Manifest, *, checked: bool) -> None:
        self._folder, self._manifest = folder, manifest
        self._widths = [table.row_bytes for table in tables(manifest)]
        self._tables = [
            _mapped(folder / table.file, manifest.num_samples * table.row_bytes) for table in tables(manifest)
        ]
        every = [
            mapping.array().reshape(manifest.num_samples, width)
            for mapping, width in zip(self._tables, self._widths, strict=True)
        ]
        #: One array of rows for each dense column.
        self.columns = every[: len(manifest.schema.columns)]
        self._ends = every[-1].view("<i8").reshape(-1) if manifest.has_records else None
        self._parts = {part: _mapped(folder / file, size) for part, file, size in manifest.part_files()}
        self._memories = {part: mapping.array() for part, mapping in self._parts.items()}
        self._reads_storage = True  # nobody knows yet
        self._checksums = checksums(folder, manifest) if checked else np.zeros(0, np.uint32)
        self._is_checked = np.full(manifest.num_samples, not checked)

    def begin(self, rows: Rows) -> int:
        """Called before a batch is read: where that goes to storage, all of it is asked for at once.

        A row that is not in memory costs its reader a page fault, one after the other: 64 of them are 64
        times the latency of the disk. Gives what :meth:`end` wants.
        """
        begun = _blocks_read()
        if self._reads_storage:
            for mapping, width in zip(self._tables, self._widths, strict=True):
                for row in np.sort(rows).tolist():
                    mapping.will_need(row * width, width)
            for row in rows.tolist() if self._ends is not None else ():
                part, start, end = self._place(row)
                if part in self._parts and 0 <= start < end <= self._parts[part].num_bytes:
                    self._parts[part].will_need(start, end - start)
        return begun

    def end(self, begun: int) -> None:
        """Called after a batch was read: whether that went to storage, the kernel counts."""
        self._reads_storage = _blocks_read() != begun

    def check(self, rows: Rows) -> None:
        """See that these samples are as they were written, each once.

        Raises:
            DamagedBakeError: one is not; names it and its part.
        """
        for row in rows[~self._is_checked[rows]].tolist():
            part, start, end = self._place(row)
            crc = 0
            for column in self.columns:
                crc = zlib.crc32(column[row], crc)
            inside = 0 <= start <= end <= len(self._memories.get(part, NOTHING))
            if not inside or zlib.crc32(self.record(row).data, crc) != self._checksums[row]:
                raise damaged(self._folder, f"part {part}, sample {row}: the checksum does not match")
            self._is_checked[row] = True

    def record(self, row: int) -> Bytes:
        """The bytes of one sample outside the columns; :meth:`check` comes before."""
        part, start, end = self._place(row)
        return self._memories.get(part, NOTHING)[start:end]

    def _place(self, row: int) -> tuple[int, int, int]:
        """The part of a record, and where it lies there."""
        part, inside = divmod(row, self._manifest.part_samples)
        if self._ends is None:
            return part, 0, 0
        return part, int(self._ends[row - 1]) if inside else 0, int(self._ends[row])


def _mapped(path: Path, num_bytes: int) -> Mapping:
    """All bytes of a file; the descriptor is closed at once, the map stays."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return Mapping(descriptor, num_bytes, writable=False)
    finally:
        os.close(descriptor)


def _blocks_read() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_inblock
