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
from typing import Any, NamedTuple

from hotloop.feed.baking import folder as folders
from hotloop.feed.baking.manifest import Manifest, record_file
from hotloop.feed.baking.schema import split
from hotloop.feed.layout import encode

#: A file is written in pieces of so many bytes.
_BUFFER_BYTES = 256 << 10


class SampleError(Exception):
    """Reading the sample at ``index`` raised the cause of this error."""

    def __init__(self, index: int) -> None:
        super().__init__(f"sample {index}")
        self.index = index


class Note(NamedTuple):
    """What a finished part leaves: the bytes of its records, and its samples' checksums (uint32, as hex)."""

    record_bytes: int
    crcs: str


def write_part(folder: Path, manifest: Manifest, dataset: Any, part: int) -> None:
    """Write part ``part`` and its note.

    Raises:
        SampleError: the dataset raised; the part stays unwritten.
        OSError: the disk is full or gone.
    """
    samples, path = manifest.samples(part), folder / record_file(part)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with contextlib.ExitStack() as files:
        tables, crcs, num_bytes = [], bytearray(), 0
        for table in manifest.tables():
            tables.append(files.enter_context((folder / table.file).open("r+b", _BUFFER_BYTES)))
            tables[-1].seek(samples.start * table.row_bytes)
        records = files.enter_context(temporary.open("wb", _BUFFER_BYTES))
        for index in samples:
            try:
                row = split(manifest.schema, encode(dataset[index]))
            except Exception as error:
                raise SampleError(index) from error
            crc = 0
            for position, column in enumerate(manifest.schema.columns):
                data = bytes(column.field.num_bytes) if row.dense is None else row.dense[position].data
                tables[position].write(data)
                crc = zlib.crc32(data, crc)
            crcs += zlib.crc32(row.record, crc).to_bytes(4, "little")
            num_bytes += records.write(row.record)
            tables[-1].write(num_bytes.to_bytes(8, "little"))
        for file in (*tables, records):
            file.flush()
            os.fdatasync(file.fileno())
    if num_bytes:
        temporary.replace(path)
        folders.sync_folder(path.parent)
    else:
        temporary.unlink()
        path.unlink(missing_ok=True)
    folders.write_atomic(_note_file(folder, part), json.dumps(Note(num_bytes, crcs.hex())).encode())


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
