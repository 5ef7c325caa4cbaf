"""``Baked``: the samples of a bake as a dataset, read with one vectorised copy per field and batch."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset, default_collate
from torch.utils.data._utils.collate import collate

from hotloop.feed import layout
from hotloop.feed.baking import fingerprint as fingerprints
from hotloop.feed.baking import manifest as manifests
from hotloop.feed.baking.checks import Checksums, RecordCheck, TableCheck, check_sizes, tables
from hotloop.feed.baking.manifest import Manifest, Table
from hotloop.feed.baking.schema import Column, is_odd, join, loose_leaves
from hotloop.feed.collating import Out
from hotloop.feed.errors import BakeError, DamagedBakeError, StaleBakeError
from hotloop.feed.layout import tensor_bytes
from hotloop.feed.memory import Mapping
from hotloop.feed.tree import unflatten

Verify = Literal["none", "lazy", "full"]
Bytes = NDArray[np.uint8]
Rows = NDArray[np.int64]

_NOTHING = np.empty(0, np.uint8)


class Baked(Dataset[Any]):  # type: ignore[misc]  # torch is not followed
    """A baked dataset: the same samples, bit for bit, from memory-mapped files.

    Args:
        path: the folder that :func:`bake` made.
        verify: when the checksums are looked at: ``"lazy"`` before a block (at most 256 KiB) is read for
            the first time in a process, ``"full"`` now, all of them, ``"none"`` never. Missing and truncated
            files are found now in any case.
        dataset: the dataset it was made from; its code, parameters and source files are compared.

    Tensors and arrays of a sample have memory of their own. It may be pickled and forked; no file stays open.
    Structure and unusual leaves are stored with pickle: open only bakes that you trust.

    Raises:
        BakeError: there is no bake at ``path``.
        StaleBakeError: ``dataset`` is not the one that was baked any more.
        DamagedBakeError: a file is missing, cut short, or (full) not as it was written.
    """

    def __init__(self, path: str | os.PathLike[str], *, verify: Verify = "lazy", dataset: Any = None) -> None:
        if verify not in get_args(Verify):
            raise ValueError(f'verify must be "none", "lazy" or "full", not {verify!r}')
        self.path = Path(path).resolve()
        self.verify = verify
        self.manifest = manifests.read(self.path)
        if dataset is not None:
            self.require_fresh(dataset)
        check_sizes(self.path, self.manifest)
        self._schema = self.manifest.schema
        self._map()
        self._batch = _Batch.of(self.manifest)
        if verify == "full":
            self._check_all()

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
        self._check_rows(rows)
        row = int(rows[0])
        return self._sample(row, [table[row] for table in self._tables])

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        rows = self._rows(indices)
        self._check_rows(rows)
        taken = [np.take(table, rows, axis=0, mode="clip") for table in self._tables]
        return [
            self._sample(row, [rows_of_table[k] for rows_of_table in taken])
            for k, row in enumerate(rows.tolist())
        ]

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
        self._check_rows(rows)
        records = [self._record(row) for row in rows.tolist()] if self._parts else []
        if any(map(is_odd, records)):
            return default_collate(self.__getitems__(indices))
        values: dict[int, Any] = {}
        for column, table, dtype in zip(self._schema.columns, self._tables, self._batch.dtypes, strict=True):
            values[column.position] = _take(table, rows, column, dtype, out or _empty)
        if self._schema.loose:
            loose = [loose_leaves(self._schema, record) for record in records]
            for position, leaves in zip(self._schema.loose, zip(*loose, strict=True), strict=True):
                values[position] = leaves
        return self._batch.build(values)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (str(self.path), self.verify, self.manifest.checksums_crc)

    def _map(self) -> None:
        folder, manifest = self.path, self.manifest
        sums = Checksums(folder, manifest) if self.verify != "none" else None
        every = [_mapped_table(folder, table, manifest) for table in tables(manifest)]
        self._tables = every[: len(self._schema.columns)]
        self._ends = every[-1].view("<i8").reshape(-1) if manifest.has_records else None
        self._parts: dict[int, Bytes] = {
            part: _mapped(folder / file, num_bytes) for part, file, num_bytes in manifest.part_files()
        }
        self._table_checks: list[TableCheck] = []
        self._record_checks: dict[int, RecordCheck] = {}
        if sums is not None:
            for table, rows, crcs in zip(tables(manifest), every, sums.tables, strict=True):
                self._table_checks.append(TableCheck(folder / table.file, manifest, table, rows, crcs))
            for part, file, _ in manifest.part_files():
                check = RecordCheck(folder / file, part, self._parts[part], sums.records[part])
                self._record_checks[part] = check

    def _check_all(self) -> None:
        for table_check in self._table_checks:
            table_check.check_all()
        for record_check in self._record_checks.values():
            record_check.check_all()

    def _check_rows(self, rows: Rows) -> None:
        for check in self._table_checks:
            check.check(rows)

    def _rows(self, indices: Sequence[int] | Iterable[int]) -> Rows:
        """The indices as row numbers, negative ones counted from the end."""
        rows = np.array([operator.index(index) for index in indices], np.int64)
        length = self.manifest.num_samples
        if len(rows) and not (-length <= rows.min() and rows.max() < length):
            wrong = next(int(row) for row in rows if not -length <= row < length)
            raise IndexError(f"index {wrong} is out of range for {length} baked samples")
        return np.where(rows < 0, rows + length, rows)

    def _sample(self, row: int, dense: list[Bytes]) -> Any:
        try:
            return join(self._schema, dense, self._record(row) if self._parts else _NOTHING)
        except (ValueError, IndexError) as error:
            raise self._broken(row, error) from error

    def _record(self, row: int) -> Bytes:
        """The bytes of one sample outside the columns; call ``_check_rows`` before."""
        part = row // self.manifest.part_samples
        memory = self._parts.get(part)
        if memory is None:
            return _NOTHING
        assert self._ends is not None
        end = int(self._ends[row])
        start = int(self._ends[row - 1]) if row % self.manifest.part_samples else 0
        if self._record_checks:
            self._record_checks[part].check(start, end)
        return memory[start:end]

    def _broken(self, row: int, error: Exception) -> DamagedBakeError:
        part = row // self.manifest.part_samples
        return DamagedBakeError(
            f"{self.path / manifests.record_file(part)} is damaged: sample {row} (part {part}): {error}",
            hint="bake again with overwrite=True (hotloop bake --overwrite)",
        )


class _Slot:
    """Stands for one leaf while torch's collation builds the structure of a batch around it."""

    __slots__ = ("position",)

    def __init__(self, position: int) -> None:
        self.position = position


class _Batch:
    """How the fields of a bake become a batch as ``default_collate`` would make it."""

    def __init__(self, skeleton: Any, dtypes: list[torch.dtype]) -> None:
        self._skeleton = skeleton
        self.dtypes = dtypes

    @classmethod
    def of(cls, manifest: Manifest) -> _Batch | None:
        """None where torch's own collation of the samples must decide: it refuses, or nothing is dense."""
        schema = manifest.schema
        dtypes = [_batch_dtype(column) for column in schema.columns]
        if schema.structure is None or any(dtype is None for dtype in dtypes):
            return None
        skeleton = unflatten(schema.structure, [_Slot(k) for k in range(len(schema.leaves))])
        batch = cls(skeleton, [dtype for dtype in dtypes if dtype is not None])
        try:
            batch.build(dict.fromkeys(range(len(schema.leaves))))
        except (TypeError, ValueError, RuntimeError):  # a dataclass, for one: torch says what it thinks of it
            return None
        return batch

    def build(self, values: dict[int, Any]) -> Any:
        """The batch with these values for the leaves: a tensor, or a tuple of leaves yet to be collated."""

        def field(batch: Sequence[_Slot], *, collate_fn_map: Any = None) -> Any:
            value = values[batch[0].position]
            # Text stays as the list or tuple in which torch's collation hands it on.
            return default_collate(type(batch)(value)) if isinstance(value, tuple) else value  # type: ignore[call-arg]

        return collate([self._skeleton], collate_fn_map={_Slot: field})


def stale(path: Path, changed: list[str]) -> StaleBakeError:
    """The error for a bake of what the dataset no longer is."""
    return StaleBakeError(
        f"{path} is a bake of what the dataset was before: " + "; ".join(changed),
        hint="bake again with overwrite=True (hotloop bake --overwrite), or undo the change",
    )


def _reopened(path: str, verify: Verify, checksums_crc: int) -> Baked:
    baked = Baked(path, verify=verify)
    if baked.manifest.checksums_crc != checksums_crc:
        raise BakeError(
            f"{path} was replaced by another bake while it was in use",
            hint="open it again in the process that started this one",
        )
    return baked


def _mapped(path: Path, num_bytes: int) -> Bytes:
    """All bytes of a file, read-only; the descriptor is closed at once, the map stays."""
    if not num_bytes:
        return _NOTHING
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return Mapping(descriptor, num_bytes, writable=False).array()
    finally:
        os.close(descriptor)


def _mapped_table(folder: Path, table: Table, manifest: Manifest) -> Bytes:
    num_bytes = manifest.num_samples * table.row_bytes
    return _mapped(folder / table.file, num_bytes).reshape(manifest.num_samples, table.row_bytes)


def _batch_dtype(column: Column) -> torch.dtype | None:
    """What ``default_collate`` makes of such leaves; None where it has no tensor for them."""
    if column.kind == layout.TENSOR:
        return layout.DTYPES[column.dtype]
    known = {layout.INTEGER: torch.int64, layout.REAL: torch.float64, layout.BOOLEAN: torch.bool}
    if column.kind in known:
        return known[column.kind]
    try:
        return torch.from_numpy(np.empty(0, column.dtype)).dtype
    except (TypeError, ValueError):
        return None


def _take(table: Bytes, rows: Rows, column: Column, dtype: torch.dtype, out: Out) -> torch.Tensor:
    batch = out((len(rows), *column.shape), dtype)
    into = tensor_bytes(batch).reshape(len(rows), column.num_bytes)
    np.take(table, rows, axis=0, out=into, mode="clip")  # "raise" would go through a buffer
    return batch


def _empty(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype)
