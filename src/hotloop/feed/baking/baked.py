"""``Baked``: the samples of a bake as a dataset, read with one vectorised copy per field and batch."""

from __future__ import annotations

import operator
import os
import resource
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset, default_collate

from hotloop.feed.baking import manifest as manifests
from hotloop.feed.baking.manifest import CHECKSUMS, Manifest, Table, damaged
from hotloop.feed.baking.schema import Schema, is_odd, join, loose_leaves
from hotloop.feed.collating import Batch, Out, batch_dtype, empty, filled, gather
from hotloop.feed.errors import BakeError, StaleBakeError
from hotloop.feed.identity import fingerprint as fingerprints
from hotloop.feed.memory import Mapping
from hotloop.feed.tree import Structure

Verify = Literal["none", "lazy", "full"]
Bytes = NDArray[np.uint8]
Rows = NDArray[np.int64]


class Baked(Dataset[Any]):  # type: ignore[misc]  # torch is not followed
    """A baked dataset: the same samples, bit for bit, from memory-mapped files.

    Args:
        path: the folder that :func:`bake` made.
        verify: when the checksums are looked at: ``"lazy"`` before a sample is read for the first time in a
            process, ``"full"`` now, all of them, ``"none"`` never. Missing and truncated files are found now
            in any case.
        dataset: the dataset it was made from; its code, parameters and source files are compared.
        trust: open objects that samples hold beside tensors, arrays, text and numbers. They are stored with
            pickle, which can run code: only for a bake whose maker you trust, as with ``torch.load``.

    Tensors and arrays of a sample have memory of their own. It may be pickled and forked; no file stays open.

    Raises:
        BakeError: there is no bake at ``path``.
        NotPlainError: without ``trust``: a sample holds such an object, or its class is not imported.
        StaleBakeError: ``dataset`` is not the one that was baked any more.
        DamagedBakeError: a file is missing, cut short, or (full) not as it was written.
    """

    _serves_loader = True
    #: Where :func:`bake` gave it: the parts that were there already.
    num_kept = 0

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        verify: Verify = "lazy",
        dataset: Any = None,
        trust: bool = False,
    ) -> None:
        if verify not in get_args(Verify):
            raise ValueError(f'verify must be "none", "lazy" or "full", not {verify!r}')
        self.path = Path(path).resolve()
        self.verify = verify
        self.trust = trust
        self.manifest = manifests.read(self.path, trust=trust)
        check_sizes(self.path, self.manifest)
        self._files = Files(self.path, self.manifest, checked=verify != "none")
        self._schema = self.manifest.schema
        self._batch, self._dtypes = _batch_of(self._schema)
        if dataset is not None:
            self.require_fresh(dataset)
        if verify == "full":
            self._files.check(np.arange(len(self)))

    def require_fresh(self, dataset: Any) -> None:
        """See that this is a bake of ``dataset`` as it is now.

        Raises:
            StaleBakeError: it is not; names what changed.
        """
        then = self.manifest.fingerprint
        now = fingerprints.take(dataset, source=then.source, beside=self.path)
        changed = fingerprints.changes(then, now)
        if changed:
            raise stale(self.path, changed)

    def __len__(self) -> int:
        return self.manifest.num_samples

    def __getitem__(self, index: int) -> Any:
        rows = self._rows([index])
        self._files.check(rows)
        row = int(rows[0])
        return self._sample(row, [column[row] for column in self._files.columns])

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        rows = self._rows(indices)
        begun = self._files.begin(rows)
        self._files.check(rows)
        columns = self._files.columns
        samples = [self._sample(row, [column[row] for column in columns]) for row in rows.tolist()]
        self._files.end(begun)
        return samples

    def __iter__(self) -> Iterator[Any]:
        for index in range(len(self)):
            yield self[index]

    def gather(self, indices: Sequence[int], out: Out | None = None) -> Any:
        """``default_collate`` of these samples, each dense field copied at once into what ``out`` gives.

        Samples of several shapes, and what has no tensor form, go through torch's own ``default_collate``.
        """
        rows = self._rows(indices)
        if self._batch is None or not len(rows):
            return default_collate(self.__getitems__(indices))
        begun = self._files.begin(rows)
        batch = self._gather(self._batch, rows, out or empty)
        self._files.end(begun)
        return batch

    def _gather(self, batch: Batch, rows: Rows, out: Out) -> Any:
        self._files.check(rows)
        records = [self._files.record(row) for row in rows.tolist()] if self.manifest.has_records else []
        if any(map(is_odd, records)):
            return default_collate(self.__getitems__(rows.tolist()))
        leaves: list[Any] = [None] * len(self._schema.leaves)
        columns = zip(self._schema.columns, self._files.columns, self._dtypes, strict=True)
        for column, table, dtype in columns:
            size = column.field.num_bytes
            fill = partial(gather, table.reshape(-1), rows * size, size=size)
            leaves[column.position] = filled(fill, len(rows), column.field, dtype, out)
        if self._schema.loose:
            loose = [loose_leaves(self._schema, record, self.trust) for record in records]
            for position, values in zip(self._schema.loose, zip(*loose, strict=True), strict=True):
                leaves[position] = values
        return batch.build(leaves)

    def __reduce__(self) -> tuple[Any, ...]:
        # What was read in full needs no second look by every worker.
        verify = "none" if self.verify == "full" else self.verify
        # The structure goes along so that another process imports the classes of the samples.
        return _reopened, (
            str(self.path),
            verify,
            self.manifest.checksums_crc,
            self.trust,
            self._schema.structure,
        )

    def _rows(self, indices: Sequence[int] | Iterable[int]) -> Rows:
        """The indices as row numbers, negative ones counted from the end."""
        rows = np.asarray(indices)
        if rows.dtype.kind not in "iu":
            rows = np.array([operator.index(index) for index in indices], np.int64)
        rows = rows.astype(np.int64, copy=False)
        length = self.manifest.num_samples
        if not len(rows) or (rows.min() >= 0 and rows.max() < length):
            return rows
        if not (-length <= rows.min() and rows.max() < length):
            wrong = next(int(row) for row in rows if not -length <= row < length)
            raise IndexError(f"index {wrong} is out of range for {length} baked samples")
        return np.where(rows < 0, rows + length, rows)

    def _sample(self, row: int, dense: list[Bytes]) -> Any:
        try:
            record = self._files.record(row) if self.manifest.has_records else NOTHING
            return join(self._schema, dense, record, self.trust)
        except (ValueError, IndexError) as error:
            part = row // self.manifest.part_samples
            path = self.path / manifests.record_file(part)
            raise manifests.damaged(path, f"sample {row} (part {part}): {error}") from error


def _batch_of(schema: Schema) -> tuple[Batch | None, list[torch.dtype]]:
    """How batches are gathered, and the columns' dtypes; None where torch's own collation must decide."""
    dtypes = [batch_dtype(column.field) for column in schema.columns]
    known = [dtype for dtype in dtypes if dtype is not None]
    if schema.structure is None or len(known) < len(dtypes):
        return None, []
    return Batch.of(schema.structure), known


def stale(path: Path, changed: list[str]) -> StaleBakeError:
    """The error for a bake of what the dataset no longer is."""
    return StaleBakeError(
        f"{path} is a bake of what the dataset was before: " + "; ".join(changed),
        hint="bake again with overwrite=True (hotloop bake --overwrite), or undo the change",
    )


def _reopened(path: str, verify: Verify, checksums_crc: int, trust: bool, _: Structure | None) -> Baked:
    baked = Baked(path, verify=verify, trust=trust)
    if baked.manifest.checksums_crc != checksums_crc:
        raise BakeError(
            f"{path} was replaced by another bake while it was in use",
            hint="open it again in the process that started this one",
        )
    return baked


# The bytes of the parts


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
