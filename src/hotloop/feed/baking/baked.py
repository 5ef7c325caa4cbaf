"""``Baked``: the samples of a bake as a dataset, read with one vectorised copy per field and batch."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset, default_collate

from hotloop.feed.baking import manifest as manifests
from hotloop.feed.baking.checks import check_sizes
from hotloop.feed.baking.files import NOTHING, Files
from hotloop.feed.baking.schema import Schema, is_odd, join, loose_leaves
from hotloop.feed.batching import Batch, batch_dtype, empty, filled
from hotloop.feed.collating import Out
from hotloop.feed.errors import BakeError, StaleBakeError
from hotloop.feed.identity import fingerprint as fingerprints
from hotloop.feed.rows import gather
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
            fill = partial(_fill, table, rows, column.field.num_bytes)
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


def _fill(table: Bytes, rows: Rows, num_bytes: int, into: torch.Tensor) -> None:
    gather(table.reshape(-1), rows * num_bytes, into, num_bytes)


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
