"""Whether the bytes of a bake are those that were written: sizes at once, checksums block by block."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hotloop.feed.baking.manifest import BLOCK_BYTES, CHECKSUMS, Manifest, Table
from hotloop.feed.errors import DamagedBakeError

Rows = NDArray[np.int64]
Bytes = NDArray[np.uint8]

_HINT = "bake again with overwrite=True (hotloop bake --overwrite)"


def damaged(path: Path, words: str) -> DamagedBakeError:
    """The error for a file that is not as it was written."""
    return DamagedBakeError(f"{path} is damaged: {words}", hint=_HINT)


def check_sizes(folder: Path, manifest: Manifest) -> None:
    """See that every file is there, at its full length.

    Raises:
        DamagedBakeError: one is missing or cut short; names it and the first part that is lost.
    """
    for table in tables(manifest):
        part_bytes = manifest.part_samples * table.row_bytes
        _check_size(folder / table.file, manifest.num_samples * table.row_bytes, part_bytes, 0)
    for part, file, num_bytes in manifest.part_files():
        _check_size(folder / file, num_bytes, max(num_bytes, 1), part)


def tables(manifest: Manifest) -> list[Table]:
    """The dense files there are: none without samples, no ends of records where there is no record."""
    if not manifest.num_samples:
        return []
    every = manifest.tables()
    return every if manifest.has_records else every[:-1]


def _check_size(path: Path, expected: int, part_bytes: int, first_part: int) -> None:
    try:
        found = path.stat().st_size
    except FileNotFoundError:
        raise damaged(path, "it is missing") from None
    if found < expected:
        part = first_part + found // part_bytes
        raise damaged(path, f"it has {found} of {expected} bytes; part {part} is cut off")
    if found > expected:
        raise damaged(path, f"it has {found} bytes, {found - expected} more than were written")


class Checksums:
    """The checksums of a bake's blocks, taken apart by file."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        path = folder / CHECKSUMS
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise damaged(path, "it is missing") from None
        if zlib.crc32(data) != manifest.checksums_crc:
            raise damaged(path, "its own checksum does not match")
        every = np.frombuffer(data, "<u4")
        self.tables: list[NDArray[np.uint32]] = []
        at = 0
        for table in tables(manifest):
            count = num_blocks(manifest, table)
            self.tables.append(every[at : at + count])
            at += count
        self.records: dict[int, NDArray[np.uint32]] = {}
        for part, _, num_bytes in manifest.part_files():
            count = -(-num_bytes // BLOCK_BYTES)
            self.records[part] = every[at : at + count]
            at += count
        if at != len(every):
            raise damaged(path, f"it has {len(every)} checksums for {at} blocks")


def num_blocks(manifest: Manifest, table: Table) -> int:
    """Blocks of a dense file: every part begins one."""
    last = len(manifest.samples(manifest.num_parts - 1))
    return (manifest.num_parts - 1) * _per_part(manifest, table) - (-last // table.block_rows)


def _per_part(manifest: Manifest, table: Table) -> int:
    return -(-manifest.part_samples // table.block_rows)


class TableCheck:
    """Compares the blocks of one dense file with their checksums, each once, when rows of it are wanted."""

    def __init__(
        self, path: Path, manifest: Manifest, table: Table, rows: Bytes, crcs: NDArray[np.uint32]
    ) -> None:
        self._path = path
        self._manifest = manifest
        self._table = table
        self._rows = rows
        self._crcs = crcs
        self._per_part = _per_part(manifest, table)
        self._good = np.zeros(len(crcs), np.bool_)
        self._num_left = len(crcs)

    def check(self, rows: Rows) -> None:
        """See that the blocks with these rows are as they were written.

        Raises:
            DamagedBakeError: one is not; names the file, the part and its samples.
        """
        if not self._num_left:
            return
        blocks = self._blocks(rows)
        wanted = blocks[~self._good[blocks]]
        for block in np.unique(wanted).tolist():
            self._check_block(block)

    @property
    def is_done(self) -> bool:
        """Whether every block was looked at."""
        return not self._num_left

    def blocks(self, rows: Rows) -> tuple[Rows, Rows]:
        """First row and number of rows of the blocks that have these rows."""
        part, inside = np.divmod(np.unique(self._blocks(rows)), self._per_part)
        first = inside * self._table.block_rows
        starts = part * self._manifest.part_samples + first
        in_part = np.minimum(self._manifest.part_samples, self._manifest.num_samples - starts + first)
        return starts, np.minimum(self._table.block_rows, in_part - first)

    def _blocks(self, rows: Rows) -> Rows:
        part, inside = np.divmod(rows, self._manifest.part_samples)
        blocks: Rows = part * self._per_part + inside // self._table.block_rows
        return blocks

    def check_all(self) -> None:
        """See that every block is as it was written."""
        for block in np.flatnonzero(~self._good).tolist():
            self._check_block(block)

    def _check_block(self, block: int) -> None:
        part, inside = divmod(block, self._per_part)
        samples = self._manifest.samples(part)
        first = samples.start + inside * self._table.block_rows
        end = min(first + self._table.block_rows, samples.stop)
        if zlib.crc32(self._rows[first:end].reshape(-1).data) != int(self._crcs[block]):
            raise damaged(
                self._path, f"part {part}, samples {first} to {end - 1}: the checksum does not match"
            )
        self._good[block] = True
        self._num_left = int(np.count_nonzero(~self._good))


class RecordCheck:
    """Compares the blocks of one part's records with their checksums, each once."""

    def __init__(self, path: Path, part: int, memory: Bytes, crcs: NDArray[np.uint32]) -> None:
        self._path = path
        self._part = part
        self._memory = memory
        self._crcs = crcs
        self._good = bytearray(len(crcs))

    def check(self, start: int, end: int) -> None:
        """See that bytes ``start`` to ``end`` are as they were written.

        Raises:
            DamagedBakeError: they are not; names the file and the part.
        """
        for block in range(start // BLOCK_BYTES, -(-end // BLOCK_BYTES)):
            if self._good[block]:
                continue
            first = block * BLOCK_BYTES
            data = self._memory[first : first + BLOCK_BYTES]
            if zlib.crc32(data.data) != int(self._crcs[block]):
                where = f"part {self._part}, bytes {first} to {first + len(data) - 1}"
                raise damaged(self._path, f"{where}: the checksum does not match")
            self._good[block] = 1

    def check_all(self) -> None:
        """See that every block is as it was written."""
        self.check(0, len(self._memory))
