"""Whether the files of a bake are those that were written: all there, at their full length, and checksums."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hotloop.feed.baking.manifest import CHECKSUMS, Manifest, Table, damaged


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


def checksums(folder: Path, manifest: Manifest) -> NDArray[np.uint32]:
    """[samples] the checksum of each.

    Raises:
        DamagedBakeError: they are damaged themselves.
    """
    path = folder / CHECKSUMS
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise damaged(path, "it is missing") from None
    if zlib.crc32(data) != manifest.checksums_crc:
        raise damaged(path, "its own checksum does not match")
    return np.frombuffer(data, "<u4")
