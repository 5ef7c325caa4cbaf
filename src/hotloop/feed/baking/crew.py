"""One part of a bake: read its samples, write their bytes, note that it is whole.

Parts know nothing of one another: any process on any machine that sees the folder can write any part, and
again. A part counts once its note is there; the note is written after the data is on disk.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import traceback
import warnings
import zlib
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from hotloop.feed.baking import folder as folders
from hotloop.feed.baking.manifest import Manifest, record_file
from hotloop.feed.baking.schema import split
from hotloop.feed.errors import BakeError, WorkerError
from hotloop.feed.layout import encode
from hotloop.feed.loader import Loader
from hotloop.feed.reading import as_it_is

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
        try:
            note = Note(*json.loads(_note_file(folder, part).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, RecursionError):
            continue
        path = folder / record_file(part)
        if note.record_bytes == 0 or (path.is_file() and path.stat().st_size == note.record_bytes):
            found[part] = note
    return found


def _note_file(folder: Path, part: int) -> Path:
    return folder / folders.NOTES / f"{part:05}.json"


# The processes that write parts


Advance = Callable[[int], None]


def write_parts(
    folder: Path,
    manifest: Manifest,
    dataset: Any,
    parts: list[int],
    *,
    num_workers: int,
    context: Any,
    advance: Advance,
) -> None:
    """Write ``parts`` with ``num_workers`` processes (0: in this one); ``advance(n)`` follows the samples.

    Raises:
        BakeError: a sample raised, the disk is full, or a worker was killed.
    """
    written = _written(_Parts(folder, manifest, dataset), parts, num_workers, context)
    try:
        with contextlib.closing(written):
            for part, failure in written:
                if failure is not None:
                    raise BakeError(failure[0], hint=failure[1])
                advance(len(manifest.samples(part)))
    except WorkerError as error:
        raise BakeError(
            f"a worker was lost: {error.message}",
            hint="finished parts are kept: run it again, with fewer workers if memory is short",
        ) from error


def _written(parts: _Parts, numbers: list[int], num_workers: int, context: Any) -> Generator[Any, None, None]:
    """The parts of these numbers, written: number and failure, as they come."""
    if num_workers == 0:
        yield from (parts[number] for number in numbers)
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
        loader = Loader(
            parts,
            batch_size=None,
            sampler=numbers,
            num_workers=min(num_workers, len(numbers)),
            collate_fn=as_it_is,
            generator=torch.Generator(),  # or the loader would draw from the user's
            prefetch_factor=1,
            in_order=False,
            multiprocessing_context=context,
        )
        iterator = iter(loader)
    try:
        yield from iterator
    finally:
        iterator.stop()


class _Parts:
    """Writes a part where its number is asked for."""

    def __init__(self, folder: Path, manifest: Manifest, dataset: Any) -> None:
        self._of = folder, manifest, dataset

    def __len__(self) -> int:
        return self._of[1].num_parts

    def __getitem__(self, part: int) -> tuple[int, tuple[str, str | None] | None]:
        return part, failure_of(*self._of, part)


def failure_of(folder: Path, manifest: Manifest, dataset: Any, part: int) -> tuple[str, str | None] | None:
    """Write a part; the words and the hint of what went wrong, which cross any process boundary."""
    try:
        write_part(folder, manifest, dataset, part)
    except SampleError as error:
        trace = "".join(traceback.format_exception(error.__cause__ or error)).rstrip()
        return (
            f"sample {error.index} (part {part}) could not be baked:\n{trace}",
            "finished parts are kept: once the sample can be read, run the same bake again",
        )
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            full = folders.no_space(folder, f"it ran full while part {part} was written")
            return full.message, full.hint
        return f"part {part} could not be written to {folder}: {error}", None
    return None
