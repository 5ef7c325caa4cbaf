"""How samples lie in a bake: leaves that are alike in every sample become dense columns, the rest records.

The schema is made from a few samples read ahead. A sample that does not fit it later is no failure: it is
stored whole, as a record of its own.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hotloop.feed import layout
from hotloop.feed.baking import plain
from hotloop.feed.errors import NotPlainError
from hotloop.feed.layout import Encoded, Field
from hotloop.feed.tree import Structure, paths, unflatten

Bytes = NDArray[np.uint8]

#: Kinds whose bytes have one length wherever dtype and shape agree.
_DENSE = (layout.TENSOR, layout.ARRAY, layout.SCALAR, layout.INTEGER, layout.REAL, layout.BOOLEAN)

#: What a record begins with; then a pickle: a structure, and kind, dtype, shape and bytes of leaves.
_FITS, _ODD = b"\0", b"\1"


class Column(NamedTuple):
    """One leaf that is dense: its position among the leaves, its name, and what it is."""

    position: int
    name: str
    field: Field


class Schema(NamedTuple):
    """The structure that samples share (None: they share none), their leaves' names, the dense ones."""

    structure: Structure | None
    leaves: tuple[str, ...]
    columns: tuple[Column, ...]

    @property
    def row_bytes(self) -> int:
        """Bytes of one sample in all dense columns."""
        return sum(column.field.num_bytes for column in self.columns)

    @property
    def loose(self) -> tuple[int, ...]:
        """Positions of the leaves that lie in records."""
        dense = {column.position for column in self.columns}
        return tuple(position for position in range(len(self.leaves)) if position not in dense)


class Row(NamedTuple):
    """One sample taken apart: the bytes for each column (None: the sample does not fit), and its record."""

    dense: list[Bytes] | None
    record: bytes


def infer(samples: Sequence[Encoded]) -> Schema:
    """The schema of a dataset from some of its samples."""
    structures = Counter(sample.layout.structure for sample in samples)
    if not structures:
        return Schema(None, (), ())
    structure = structures.most_common(1)[0][0]
    samples = [sample for sample in samples if sample.layout.structure == structure]
    names = tuple(paths(structure))
    columns = []
    for position, name in enumerate(names):
        first = samples[0].layout.fields[position]
        alike = all(first[:3] == sample.layout.fields[position][:3] for sample in samples)
        if alike and first.kind in _DENSE and first.num_bytes:
            columns.append(Column(position, name, first._replace(offset=0)))
    return Schema(structure, names, tuple(columns))


def split(schema: Schema, sample: Encoded) -> Row:
    """A sample's rows in the columns and its record (empty where the columns hold all of it)."""
    fields = sample.layout.fields
    if sample.layout.structure != schema.structure or not all(
        column.field[:3] == fields[column.position][:3] for column in schema.columns
    ):
        return Row(None, _ODD + _record(sample.layout.structure, sample, range(len(fields))))
    dense = [sample.payloads[column.position] for column in schema.columns]
    return Row(dense, _FITS + _record(None, sample, schema.loose) if schema.loose else b"")


def join(schema: Schema, dense: Sequence[Bytes], record: Bytes, trust: bool) -> Any:
    """The sample that :func:`split` took apart; tensors and arrays have memory of their own.

    Raises:
        ValueError: the record is not one (it was damaged, and nobody looked at its checksum).
        NotPlainError: it holds objects, without ``trust``.
    """
    if is_odd(record):
        return unflatten(*_read(record, trust))
    leaves: list[Any] = [None] * len(schema.leaves)
    for column, row in zip(schema.columns, dense, strict=True):
        leaves[column.position] = layout.read_leaf(column.field, row, copy=True)
    if len(schema.columns) < len(leaves):
        for position, leaf in zip(schema.loose, loose_leaves(schema, record, trust), strict=True):
            leaves[position] = leaf
    assert schema.structure is not None
    return unflatten(schema.structure, leaves)


def is_odd(record: Bytes) -> bool:
    """Whether a record holds a whole sample that did not fit the schema."""
    return bool(len(record)) and bytes(record[:1]) == _ODD


def loose_leaves(schema: Schema, record: Bytes, trust: bool) -> list[Any]:
    """The leaves in the record of a sample that fits the schema, in order."""
    found = _read(record, trust)[1]
    if len(found) != len(schema.loose):
        raise ValueError("a record is not readable: it has another number of leaves")
    return found


def _record(structure: Structure | None, sample: Encoded, positions: Sequence[int]) -> bytes:
    fields, payloads = sample.layout.fields, sample.payloads
    leaves = [(*fields[at][:3], payloads[at].tobytes()) for at in positions]
    return pickle.dumps((structure, leaves), protocol=5)


def _read(record: Bytes, trust: bool) -> tuple[Any, list[Any]]:
    """The structure and the leaves of a record; tensors and arrays have memory of their own."""
    try:
        structure, leaves = plain.loads(record.data[1:], trust)
        return structure, [_leaf(trust, *leaf) for leaf in leaves]
    except NotPlainError:
        raise
    except Exception as error:  # whatever reading a pickle raises that is none
        raise ValueError(f"a record is not readable: {error}") from error


def _leaf(trust: bool, kind: str, dtype: str, shape: tuple[int, ...], data: bytes) -> Any:
    if kind == layout.PICKLED and not trust:
        raise NotPlainError(
            "a sample holds an object that is no tensor, array, text or number", hint=plain.HINT
        )
    field = Field(kind, dtype, shape, 0, len(data))
    return layout.read_leaf(field, np.frombuffer(bytearray(data), np.uint8), copy=False)
