"""Whether the bytes of a bake are those that were written: sizes at once, checksums block by block."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hotloop.feed.baking.manifest import BLOCK_BYTES, CHECKSUMS, Manifest, Table, damaged

Rows = NDArray[np.int64]
Bytes = NDArray[np.uint8]


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


class BlockCheck:
    """Compares the blocks of one file with their checksums, each once, when bytes in it are wanted.

    ``starts`` is where each block begins, and the end of the last; ``named`` says which block it is.
    """

    def __init__(
        self, path: Path, memory: Bytes, starts: Rows, crcs: NDArray[np.uint32], named: Callable[[int], str]
    ) -> None:
        self._path = path
        self._memory = memory
        self._starts = starts
        self._crcs = crcs
        self._named = named
        self._good = np.zeros(len(crcs), np.bool_)
        self._is_done = not len(crcs)

    def check(self, first: Rows, last: Rows) -> None:
        """See that the blocks with bytes ``first`` to ``last`` (both included) are as they were written.

        Raises:
            DamagedBakeError: one is not; names the file and the place.
        """
        if self._is_done or not len(first):
            return
        begin = np.searchsorted(self._starts, first, "right") - 1
        end = np.searchsorted(self._starts, last, "right")
        pairs = zip(begin.clip(0).tolist(), end.clip(0, len(self._crcs)).tolist(), strict=True)
        for block in sorted({block for pair in pairs for block in range(*pair)}):
            self._check_block(block)
        self._is_done = bool(self._good.all())

    def check_all(self) -> None:
        """See that every block is as it was written."""
        for block in range(len(self._crcs)):
            self._check_block(block)
        self._is_done = True

    def _check_block(self, block: int) -> None:
        if self._good[block]:
            return
        data = self._memory[self._starts[block] : self._starts[block + 1]]
        if zlib.crc32(data.data) != int(self._crcs[block]):
            raise damaged(self._path, f"{self._named(block)}: the checksum does not match")
        self._good[block] = True


def checks_of(
    folder: Path, manifest: Manifest, memories: list[Bytes], records: dict[int, Bytes]
) -> tuple[list[BlockCheck], dict[int, BlockCheck]]:
    """A check for every dense file, and for every part's records, over their bytes.

    Raises:
        DamagedBakeError: the checksums themselves are damaged.
    """
    path = folder / CHECKSUMS
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise damaged(path, "it is missing") from None
    if zlib.crc32(data) != manifest.checksums_crc:
        raise damaged(path, "its own checksum does not match")
    every, at = np.frombuffer(data, "<u4"), 0

    def made(file: str, memory: Bytes, starts: list[int], named: Callable[[int], str]) -> BlockCheck:
        nonlocal at
        at += len(starts) - 1
        crcs = every[at - len(starts) + 1 : at]
        return BlockCheck(folder / file, memory, np.array(starts, np.int64), crcs, named)

    dense = []
    for table, memory in zip(tables(manifest), memories, strict=True):
        rows = _block_rows(manifest, table)
        starts = [row * table.row_bytes for row in rows]
        dense.append(made(table.file, memory, starts, partial(_samples_named, manifest, rows)))
    loose = {}
    for part, file, num_bytes in manifest.part_files():
        starts = [*range(0, num_bytes, BLOCK_BYTES), num_bytes]
        loose[part] = made(file, records[part], starts, partial(_bytes_named, part, starts))
    if at != len(every):
        raise damaged(path, f"it has {len(every)} checksums for {at} blocks")
    return dense, loose


def _block_rows(manifest: Manifest, table: Table) -> list[int]:
    """The first row of every block, and the number of rows: every part begins a block."""
    parts = map(manifest.samples, range(manifest.num_parts))
    first = [row for samples in parts for row in range(samples.start, samples.stop, table.block_rows)]
    return [*first, manifest.num_samples]


def _samples_named(manifest: Manifest, rows: list[int], block: int) -> str:
    part = rows[block] // manifest.part_samples
    return f"part {part}, samples {rows[block]} to {rows[block + 1] - 1}"


def _bytes_named(part: int, starts: list[int], block: int) -> str:
    return f"part {part}, bytes {starts[block]} to {starts[block + 1] - 1}"
