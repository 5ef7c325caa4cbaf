"""The mapped files of a bake: rows and records, looked at before they are believed."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hotloop.feed.baking.checks import BlockCheck, checks_of, tables
from hotloop.feed.baking.manifest import Manifest
from hotloop.feed.memory import Mapping

Bytes = NDArray[np.uint8]
Rows = NDArray[np.int64]

NOTHING = np.empty(0, np.uint8)


class Files:
    """Read-only maps of all files of a bake. No descriptor stays open; the maps outlive a replaced bake.

    With ``checked`` a block is compared with its checksum when something in it is first asked for.
    """

    def __init__(self, folder: Path, manifest: Manifest, *, checked: bool) -> None:
        self._manifest = manifest
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
        self._checks: list[BlockCheck] = []
        self._record_checks: dict[int, BlockCheck] = {}
        self._reads_storage = True  # nobody knows yet
        if checked:
            memories = [mapping.array() for mapping in self._tables]
            self._checks, self._record_checks = checks_of(folder, manifest, memories, self._memories)

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
        """See that all about these samples but their records is as it was written.

        Raises:
            DamagedBakeError: it is not.
        """
        for number, check in enumerate(self._checks):
            width = self._widths[number]
            # A record begins where the one before ends.
            first = rows if number < len(self.columns) else np.maximum(rows - 1, 0)
            check.check(first * width, (rows + 1) * width - 1)

    def check_all(self) -> None:
        """See that everything is as it was written.

        Raises:
            DamagedBakeError: it is not.
        """
        for check in (*self._checks, *self._record_checks.values()):
            check.check_all()

    def record(self, row: int) -> Bytes:
        """The bytes of one sample outside the columns; :meth:`check` comes before.

        Raises:
            DamagedBakeError: they are not as they were written.
        """
        if self._ends is None:
            return NOTHING
        part, start, end = self._place(row)
        memory = self._memories.get(part)
        if memory is None:
            return NOTHING
        if self._record_checks and end > start:
            self._record_checks[part].check(np.array([start]), np.array([end - 1]))
        return memory[start:end]

    def _place(self, row: int) -> tuple[int, int, int]:
        """The part of a record, and where it lies there."""
        assert self._ends is not None
        part, inside = divmod(row, self._manifest.part_samples)
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
