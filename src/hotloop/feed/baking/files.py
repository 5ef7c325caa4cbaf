"""The mapped files of a bake: rows and records, looked at before they are believed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hotloop.feed.baking.checks import Checksums, RecordCheck, TableCheck, tables
from hotloop.feed.baking.manifest import Manifest, Table
from hotloop.feed.baking.readahead import ReadAhead, tell_rows
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
        self._tables = [_MappedTable(folder, table, manifest) for table in tables(manifest)]
        every = [table.rows for table in self._tables]
        #: One array of rows for each dense column.
        self.columns = every[: len(manifest.schema.columns)]
        self._ends = every[-1].view("<i8").reshape(-1) if manifest.has_records else None
        self._parts = {part: _mapped(folder / file, size) for part, file, size in manifest.part_files()}
        self._memories = {part: mapping.array() for part, mapping in self._parts.items()}
        self._table_checks: list[TableCheck] = []
        self._record_checks: dict[int, RecordCheck] = {}
        self._ahead = ReadAhead()
        if checked:
            self._add_checks(folder, Checksums(folder, manifest))

    def _add_checks(self, folder: Path, sums: Checksums) -> None:
        for mapped, crcs in zip(self._tables, sums.tables, strict=True):
            path = folder / mapped.table.file
            self._table_checks.append(TableCheck(path, self._manifest, mapped.table, mapped.rows, crcs))
        for part, file, _ in self._manifest.part_files():
            check = RecordCheck(folder / file, part, self._memories[part], sums.records[part])
            self._record_checks[part] = check

    def begin(self, rows: Rows) -> int:
        """Called before a batch is read: where that goes to storage, all of it is asked for at once.

        Gives what :meth:`end` wants.
        """
        begun = self._ahead.begin()
        if self._ahead.is_worth_while:
            self._tell(rows)
        return begun

    def end(self, begun: int) -> None:
        """Called after a batch was read."""
        self._ahead.end(begun)

    def check(self, rows: Rows) -> None:
        """See that all about these samples but their records is as it was written.

        Raises:
            DamagedBakeError: it is not.
        """
        if not self._table_checks:
            return
        columns = len(self.columns)
        for check in self._table_checks[:columns]:
            check.check(rows)
        for check in self._table_checks[columns:]:
            check.check(rows)
            check.check(np.maximum(rows - 1, 0))  # a record begins where the one before ends

    def check_all(self) -> None:
        """See that everything is as it was written.

        Raises:
            DamagedBakeError: it is not.
        """
        for table_check in self._table_checks:
            table_check.check_all()
        for record_check in self._record_checks.values():
            record_check.check_all()

    def record(self, row: int) -> Bytes:
        """The bytes of one sample outside the columns; :meth:`check` comes before.

        Raises:
            DamagedBakeError: they are not as they were written.
        """
        part = row // self._manifest.part_samples
        memory = self._memories.get(part)
        if memory is None or self._ends is None:
            return NOTHING
        end = int(self._ends[row])
        start = int(self._ends[row - 1]) if row % self._manifest.part_samples else 0
        if self._record_checks:
            self._record_checks[part].check(start, end)
        return memory[start:end]

    def _tell(self, rows: Rows) -> None:
        for number, mapped in enumerate(self._tables):
            if self._table_checks and not self._table_checks[number].is_done:
                starts, counts = self._table_checks[number].blocks(rows)
            else:
                starts, counts = rows, np.ones_like(rows)
            tell_rows(mapped.mapping, mapped.table.row_bytes, starts, counts)
        if self._ends is not None:
            self._tell_records(rows)

    def _tell_records(self, rows: Rows) -> None:
        assert self._ends is not None
        for row in rows.tolist():
            part = row // self._manifest.part_samples
            if part in self._parts:
                end = int(self._ends[row])
                start = int(self._ends[row - 1]) if row % self._manifest.part_samples else 0
                if 0 <= start < end <= self._parts[part].num_bytes:
                    self._parts[part].will_need(start, end - start)


class _MappedTable:
    def __init__(self, folder: Path, table: Table, manifest: Manifest) -> None:
        self.table = table
        self.mapping = _mapped(folder / table.file, manifest.num_samples * table.row_bytes)
        self.rows = self.mapping.array().reshape(manifest.num_samples, table.row_bytes)


def _mapped(path: Path, num_bytes: int) -> Mapping:
    """All bytes of a file; the descriptor is closed at once, the map stays."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return Mapping(descriptor, num_bytes, writable=False)
    finally:
        os.close(descriptor)
