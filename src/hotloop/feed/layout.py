"""Trees of tensors, arrays, bytes, text and numbers as one stretch of bytes, and back.

A :class:`Layout` says where every leaf lies and what it is; it is plain, hashable, picklable data, so that
samples of one shape share one. Payloads are aligned to 64 bytes. Dimensions in another order than row by row
(channels last, transposed, Fortran) come back in that order. What has no plain form (sparse tensors, objects
of the user's own) is pickled into its field.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from hotloop.feed.memory import round_up
from hotloop.feed.tree import Structure, flatten, paths, unflatten

ALIGNMENT = 64

TENSOR, ARRAY, BYTES, TEXT = "tensor", "array", "bytes", "text"
INTEGER, REAL, BOOLEAN, PICKLED = "int", "float", "bool", "pickle"
SCALAR = "scalar"  # one of numpy's own numbers

#: Tensor dtypes by name, so that a layout can be read without naming torch objects.
DTYPES = {str(value): value for value in vars(torch).values() if isinstance(value, torch.dtype)}


class Field(NamedTuple):
    """One leaf: its kind, dtype (torch's or numpy's spelling, or empty), shape, and place in bytes.

    Where the dimensions do not lie row by row, their order is part of the dtype: ``torch.uint8@1,2,0``.
    """

    kind: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    num_bytes: int


class Layout(NamedTuple):
    """Where the leaves of a tree lie in ``num_bytes`` of memory."""

    structure: Structure
    fields: tuple[Field, ...]
    num_bytes: int


class Encoded(NamedTuple):
    """A tree ready to be written: its layout and, for every field, its bytes (flat uint8, not yet copied)."""

    layout: Layout
    payloads: list[NDArray[np.uint8]]


def encode(tree: Any) -> Encoded:
    """The layout of a tree and the bytes of its leaves; big leaves are not copied."""
    # A defaultdict cannot be built from its items alone.
    leaves, structure = flatten(tree, lambda value: isinstance(value, defaultdict))
    fields, payloads, offset = [], [], 0
    for leaf in leaves:
        kind, dtype, shape, payload = _payload(leaf)
        fields.append(Field(kind, dtype, shape, offset, payload.nbytes))
        payloads.append(payload)
        offset = round_up(offset + payload.nbytes, ALIGNMENT)
    return Encoded(Layout(structure, tuple(fields), offset), payloads)


def write(encoded: Encoded, into: NDArray[np.uint8]) -> None:
    """Copy an encoded tree into the beginning of a flat uint8 array of at least ``layout.num_bytes``."""
    for field, payload in zip(encoded.layout.fields, encoded.payloads, strict=True):
        into[field.offset : field.offset + field.num_bytes] = payload


def read(layout: Layout, memory: NDArray[np.uint8], *, copy: bool) -> Any:
    """The tree that was written into ``memory``.

    With ``copy=False`` tensors and arrays are views that keep ``memory``'s base alive (writable if it is).
    """
    return unflatten(layout.structure, [read_leaf(field, memory, copy=copy) for field in layout.fields])


def _payload(leaf: Any) -> tuple[str, str, tuple[int, ...], NDArray[np.uint8]]:
    kind = type(leaf)
    if kind is torch.Tensor and is_plain(leaf):
        order = _order(leaf.is_contiguous(), leaf.stride(), leaf.permute, lambda one: one.is_contiguous())
        dtype = str(leaf.dtype) + (f"@{','.join(map(str, order))}" if order else "")
        return TENSOR, dtype, tuple(leaf.shape), tensor_bytes(leaf.permute(order) if order else leaf)
    # A memmap is an array whose memory happens to lie in a file: what comes back is a plain array.
    if kind in (np.ndarray, np.memmap) and not leaf.dtype.hasobject and leaf.dtype.names is None:
        plain = leaf.flags.c_contiguous
        order = _order(plain, leaf.strides, leaf.transpose, lambda one: one.flags.c_contiguous)
        dtype = leaf.dtype.str + (f"@{','.join(map(str, order))}" if order else "")
        flat = np.ascontiguousarray(leaf.transpose(order) if order else leaf).reshape(-1)
        return ARRAY, dtype, leaf.shape, flat.view(np.uint8)
    if kind is bytes:
        return BYTES, "", (), np.frombuffer(leaf, np.uint8)
    if kind is str:
        return TEXT, "", (), np.frombuffer(leaf.encode("utf-8", "surrogatepass"), np.uint8)
    if kind is bool:
        return BOOLEAN, "", (), np.frombuffer(b"\1" if leaf else b"\0", np.uint8)
    if kind is int and -(1 << 63) <= leaf < 1 << 63:
        return INTEGER, "", (), np.frombuffer(leaf.to_bytes(8, "little", signed=True), np.uint8)
    if kind is float:
        return REAL, "", (), np.array([leaf], np.float64).view(np.uint8)
    if isinstance(leaf, np.generic) and leaf.dtype.kind in "biufcmM":
        return SCALAR, leaf.dtype.str, (), np.array([leaf]).view(np.uint8)
    if isinstance(leaf, torch.Tensor) and leaf.grad_fn is not None:
        raise TypeError("a tensor that belongs to a graph cannot be stored: detach() it")
    return PICKLED, "", (), np.frombuffer(pickle.dumps(leaf, pickle.HIGHEST_PROTOCOL), np.uint8)


def _order(
    is_plain: bool, strides: Sequence[int], permuted: Callable[[Any], Any], is_right: Callable[[Any], bool]
) -> tuple[int, ...]:
    """The dimensions from the outermost to the innermost; empty where they lie row by row, or not densely."""
    if is_plain:
        return ()
    order = tuple(sorted(range(len(strides)), key=lambda dimension: -strides[dimension]))
    return order if is_right(permuted(order)) else ()


def ordered(dtype: str, shape: Sequence[int]) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    """A field's dtype alone, the shape as it lies in memory, and how to permute that (empty: not at all)."""
    plain, _, text = dtype.partition("@")
    if not text:
        return plain, tuple(shape), ()
    order = tuple(map(int, text.split(",")))
    inverse = tuple(sorted(range(len(order)), key=order.__getitem__))
    return plain, tuple(shape[dimension] for dimension in order), inverse


def is_plain(tensor: torch.Tensor) -> bool:
    """Dense, on the host, outside any graph: bytes and strides are all there is to it."""
    return (
        tensor.layout is torch.strided
        and not tensor.is_nested
        and tensor.is_cpu
        and not tensor.requires_grad
        and not tensor.is_quantized
        and not tensor.is_neg()
        and not tensor.is_conj()
    )


def tensor_bytes(tensor: torch.Tensor) -> NDArray[np.uint8]:
    """The bytes of a dense host tensor, flat, in row-major order; copied only where it is not contiguous."""
    flat: NDArray[np.uint8] = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
    return flat


def read_leaf(field: Field, memory: NDArray[np.uint8], *, copy: bool) -> Any:
    """One leaf, see :func:`read`."""
    stretch = memory[field.offset : field.offset + field.num_bytes]
    if field.kind == TENSOR:
        dtype, shape, inverse = ordered(field.dtype, field.shape)
        if not field.num_bytes:
            return torch.empty(field.shape, dtype=DTYPES[dtype])
        tensor = torch.from_numpy(stretch.copy() if copy else stretch).view(DTYPES[dtype]).view(shape)
        return tensor.permute(inverse) if inverse else tensor
    if field.kind == ARRAY:
        dtype, shape, inverse = ordered(field.dtype, field.shape)
        array = (stretch.copy() if copy else stretch).view(dtype).reshape(shape)
        return array.transpose(inverse) if inverse else array
    if field.kind == SCALAR:
        return stretch.view(field.dtype)[0]
    if field.kind == BYTES:
        return stretch.tobytes()
    if field.kind == TEXT:
        return stretch.tobytes().decode("utf-8", "surrogatepass")
    if field.kind == INTEGER:
        return int.from_bytes(stretch.tobytes(), "little", signed=True)
    if field.kind == REAL:
        return float(stretch.view(np.float64)[0])
    if field.kind == BOOLEAN:
        return bool(stretch[0])
    return pickle.loads(stretch.tobytes())  # nosec B301


# Whether two samples are the same, leaf by leaf, and what differs in words


def snapshot(sample: Any) -> Encoded:
    """A sample as it is now, with bytes of its own: a later change in place does not reach them.

    Raises:
        Exception: whatever pickling a leaf of an unknown type raises.
    """
    encoded = encode(sample)
    return Encoded(encoded.layout, [payload.copy() for payload in encoded.payloads])


def differences(first: Encoded, second: Encoded) -> list[str]:
    """One line per leaf that is not the same bit for bit; empty when the samples are equal."""
    before, after = first.layout, second.layout
    if before.structure != after.structure:
        return ["has another structure"]
    return [
        f"{name}: {word}" if name else word
        for position, name in enumerate(paths(before.structure))
        if (word := _difference(first, second, position))
    ]


def _difference(first: Encoded, second: Encoded, position: int) -> str:
    before, after = first.layout.fields[position], second.layout.fields[position]
    if before.kind != after.kind:
        return f"a {before.kind} first, then a {after.kind}"
    if before.dtype != after.dtype:
        return f"{before.dtype} first, then {after.dtype}"
    if before.shape != after.shape:
        return f"shape {before.shape} first, then {after.shape}"
    old, new = first.payloads[position], second.payloads[position]
    if np.array_equal(old, new) or (before.kind == PICKLED and _equal(old, new)):
        return ""
    if before.kind not in (TENSOR, ARRAY) or old.nbytes != new.nbytes:
        return "another value"
    num = int(np.prod(before.shape)) if before.shape else 1
    changed = int((old.reshape(num, -1) != new.reshape(num, -1)).any(axis=1).sum())
    return f"{changed:,} of {num:,} elements differ"


def _equal(old: NDArray[np.uint8], new: NDArray[np.uint8]) -> bool:
    """Equality by the objects' own word, as pickles of equal objects may differ."""
    try:
        first, second = pickle.loads(old.tobytes()), pickle.loads(new.tobytes())  # nosec B301
        if isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor):
            return bool(torch.equal(first, second))
        return bool(first == second)
    except Exception:  # the objects' own: what cannot be compared is not the same
        return False
