"""One part of a bake: read its samples, write their bytes, note that it is whole.

Parts know nothing of one another: any process on any machine that sees the folder can write any part, and
again. A part counts once its note is there; the note is written after the data is on disk.
"""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hotloop.feed.baking import folder as folders
from hotloop.feed.baking.manifest import BLOCK_BYTES, Manifest, Table, record_file
from hotloop.feed.baking.schema import Bytes, split
from hotloop.feed.layout import encode


class SampleError(Exception):
    """Reading the sample at ``index`` raised the cause of this error."""

    def __init__(self, index: int) -> None:
        super().__init__(f"sample {index}")
        self.index = index


class Note(NamedTuple):
    """What a finished part leaves: the bytes of its records, and the checksums of its blocks by file."""

    record_bytes: int
    table_crcs: list[list[int]]
    record_crcs: list[int]


def write_part(folder: Path, manifest: Manifest, dataset: Any, part: int) -> None:
    """Write part ``part`` and its note.

    Raises:
        SampleError: the dataset raised; the part stays unwritten.
        OSError: the disk is full or gone.
    """
    samples = manifest.samples(part)
    tables = [_TableWriter(folder, table, samples) for table in manifest.tables()]
    records = _RecordWriter(folder / record_file(part))
    try:
        for index in samples:
            try:
                row = split(manifest.schema, encode(dataset[index]))
            except Exception as error:
                raise SampleError(index) from error
            records.add(row.record)
            for position, writer in enumerate(tables[:-1]):
                writer.add(None if row.dense is None else row.dense[position])
            tables[-1].add(np.array([records.num_bytes], "<i8").view(np.uint8))
        note = Note(records.finish(), [writer.finish() for writer in tables], records.crcs)
    finally:
        for writer in tables:
            writer.close()
        records.close()
    _write_note(folder, part, note)


def finished(folder: Path, manifest: Manifest) -> dict[int, Note]:
    """The parts that are whole, with their notes; a note that cannot be read counts for nothing."""
    found = {}
    for part in range(manifest.num_parts):
        note = _read_note(folder, part)
        if note is not None and _is_there(folder / record_file(part), note.record_bytes):
            found[part] = note
    return found


def _is_there(path: Path, num_bytes: int) -> bool:
    return num_bytes == 0 or (path.is_file() and path.stat().st_size == num_bytes)


def _note_file(folder: Path, part: int) -> Path:
    return folder / folders.NOTES / f"{part:05}.json"


def _write_note(folder: Path, part: int, note: Note) -> None:
    folders.write_atomic(_note_file(folder, part), json.dumps(note).encode())


def _read_note(folder: Path, part: int) -> Note | None:
    try:
        return Note(*json.loads(_note_file(folder, part).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


class _TableWriter:
    """Fills one part's rows of a dense file, block by block."""

    def __init__(self, folder: Path, table: Table, samples: range) -> None:
        self._descriptor = os.open(folder / table.file, os.O_WRONLY)
        self._at = samples.start * table.row_bytes
        self._block = np.empty((min(table.block_rows, len(samples)), table.row_bytes), np.uint8)
        self._rows = 0
        self._crcs: list[int] = []

    def add(self, row: Bytes | None) -> None:
        self._block[self._rows] = 0 if row is None else row
        self._rows += 1
        if self._rows == len(self._block):
            self._flush()

    def finish(self) -> list[int]:
        """Everything to disk; the checksums of the blocks."""
        self._flush()
        folders.sync_data(self._descriptor)
        return self._crcs

    def close(self) -> None:
        os.close(self._descriptor)

    def _flush(self) -> None:
        if self._rows:
            data = self._block[: self._rows].reshape(-1).data
            self._crcs.append(zlib.crc32(data))
            _write_all(self._descriptor, data, self._at)
            self._at += len(data)
            self._rows = 0


class _RecordWriter:
    """Writes one part's records under another name, which it loses when the part is whole."""

    def __init__(self, path: Path) -> None:
        self.num_bytes = 0
        self.crcs: list[int] = []
        self._path = path
        self._temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        self._descriptor = -1
        self._waiting = bytearray()

    def add(self, record: bytes) -> None:
        self.num_bytes += len(record)
        self._waiting += record
        while len(self._waiting) >= BLOCK_BYTES:
            self._flush(BLOCK_BYTES)

    def finish(self) -> int:
        """Everything to disk, under its own name (no file where there is no record); returns the bytes."""
        self._flush(len(self._waiting))
        if self._descriptor >= 0:
            folders.sync_data(self._descriptor)
            self._temporary.replace(self._path)
            folders.sync_folder(self._path.parent)
        else:
            self._path.unlink(missing_ok=True)
        return self.num_bytes

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def _flush(self, num_bytes: int) -> None:
        if not num_bytes:
            return
        if self._descriptor < 0:
            self._descriptor = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        block = bytes(self._waiting[:num_bytes])
        del self._waiting[:num_bytes]
        self.crcs.append(zlib.crc32(block))
        _write_all(self._descriptor, memoryview(block), -1)


def _write_all(descriptor: int, data: memoryview, at: int) -> None:
    """All of it, at ``at`` or (-1) where the file stands: a write may come short."""
    while data:
        count = os.write(descriptor, data) if at < 0 else os.pwrite(descriptor, data, at)
        data = data[count:]
        at = at if at < 0 else at + count
