"""One part of a bake: read its samples, write their bytes, note that it is whole.

Parts know nothing of one another: any process on any machine that sees the folder can write any part, and
again. A part counts once its note is there; the note is written after the data is on disk.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from hotloop.feed.baking import folder as folders
from hotloop.feed.baking.manifest import BLOCK_BYTES, Manifest, record_file
from hotloop.feed.baking.schema import split
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
    samples, path = manifest.samples(part), folder / record_file(part)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with contextlib.ExitStack() as files:
        tables = []
        for table in manifest.tables():
            file = files.enter_context((folder / table.file).open("r+b"))
            file.seek(samples.start * table.row_bytes)
            tables.append(_BlockWriter(file, table.block_rows * table.row_bytes))
        records = _BlockWriter(files.enter_context(temporary.open("wb")), BLOCK_BYTES)
        for index in samples:
            try:
                row = split(manifest.schema, encode(dataset[index]))
            except Exception as error:
                raise SampleError(index) from error
            records.add(row.record)
            for position, column in enumerate(manifest.schema.columns):
                data = bytes(column.field.num_bytes) if row.dense is None else row.dense[position].data
                tables[position].add(data)
            tables[-1].add(records.num_bytes.to_bytes(8, "little"))
        note = Note(records.num_bytes, [writer.finish() for writer in tables], records.finish())
    if records.num_bytes:
        temporary.replace(path)
        folders.sync_folder(path.parent)
    else:
        temporary.unlink()
        path.unlink(missing_ok=True)
    folders.write_atomic(_note_file(folder, part), json.dumps(note).encode())


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


def _read_note(folder: Path, part: int) -> Note | None:
    try:
        return Note(*json.loads(_note_file(folder, part).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        return None


class _BlockWriter:
    """Writes to a file in blocks, each with a checksum."""

    def __init__(self, file: BinaryIO, block_bytes: int) -> None:
        self.num_bytes = 0
        self._file, self._block_bytes = file, block_bytes
        self._crcs: list[int] = []
        self._waiting = bytearray()

    def add(self, data: bytes | memoryview) -> None:
        self.num_bytes += len(data)
        self._waiting += data
        while len(self._waiting) >= self._block_bytes:
            self._write(self._block_bytes)

    def finish(self) -> list[int]:
        """Everything to disk; the checksums of the blocks."""
        if self._waiting:
            self._write(len(self._waiting))
        self._file.flush()
        os.fdatasync(self._file.fileno())
        return self._crcs

    def _write(self, num_bytes: int) -> None:
        block = bytes(self._waiting[:num_bytes])
        del self._waiting[:num_bytes]
        self._crcs.append(zlib.crc32(block))
        self._file.write(block)
