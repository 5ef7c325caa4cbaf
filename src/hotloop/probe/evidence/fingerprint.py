"""Checksums of what lies in host memory: read where it lies, no copy of a whole contiguous tensor."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_char
from typing import Any, Final
from zlib import crc32

from hotloop.probe import batches
from hotloop.state.stored import is_array, is_tensor

#: Up to this many bytes all are read; of more, ``_WORDS`` words of 8 bytes spread over the whole.
_ALL_BYTES: Final = 65_536
_WORDS: Final = 4096
#: Leaves of a batch that have a checksum of their own; the last one holds the rest together.
MAX_LEAVES: Final = 16
_PLAIN: Final = (bool, int, float, str, bytes, type(None))


def memory(address: int, num_bytes: int) -> memoryview:
    """``num_bytes`` of this process's memory."""
    return memoryview((c_char * num_bytes).from_address(address)).cast("B")


def of_bytes(view: memoryview, start: int = 0, *, full: bool = False) -> int:
    """The crc32 of contiguous bytes; of many, a sample that finds exchanged samples but not every element."""
    if full or view.nbytes <= _ALL_BYTES:
        return crc32(view, start)
    words = view.nbytes // 8
    # An odd stride meets every channel and every sample of the usual shapes.
    spread = view[: words * 8].cast("Q")[:: (words // _WORDS) | 1]
    return crc32(spread.tobytes(), start)


def of_tensor(tensor: Any, *, full: bool = False) -> int | None:
    """Of a strided host tensor: dtype, shape and values. None of any other."""
    if not tensor.is_cpu:
        return None
    start = crc32(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
    if "strided" not in str(tensor.layout):
        return None
    num_bytes = tensor.numel() * tensor.element_size()
    if not num_bytes:
        return start
    if not tensor.is_contiguous():
        tensor = tensor.detach().contiguous()
    address = tensor.data_ptr()  # raises RuntimeError for tensors that hold no data of their own
    return of_bytes(memory(address, num_bytes), start, full=full) if address else None


def of_value(value: Any, *, full: bool = False) -> int | None:
    """Of one leaf of a batch; None where nothing is known of its values."""
    if is_tensor(value):
        return of_tensor(value, full=full)
    if is_array(value):
        if getattr(getattr(value, "dtype", None), "hasobject", True):
            return None
        start = crc32(f"{value.dtype}{value.shape}".encode())
        view = memoryview(value) if value.flags["C_CONTIGUOUS"] else memoryview(value.tobytes())
        return of_bytes(view.cast("B"), start, full=full) if value.size else start
    plain: Any = next((kind for kind in _PLAIN if kind in type(value).__mro__), None)
    return None if plain is None else crc32(plain.__repr__(value).encode("utf-8", "backslashreplace"))


def of_batch(batch: Any, *, full: bool = False) -> list[tuple[int, int]]:
    """(leaf number, checksum) of every leaf whose values can be read; the last number holds the rest."""
    found: list[tuple[int, int]] = []
    rest = 0
    for number, (path, value) in enumerate(batches.leaves(batch)):
        try:
            crc = of_value(value, full=full)
        except (RuntimeError, ValueError, TypeError, NotImplementedError):
            crc = None
        if crc is None:
            continue
        if number < MAX_LEAVES - 1:
            found.append((number, crc))
        else:
            rest = crc32(f"{path}{crc}".encode(), rest)
    if rest:
        found.append((MAX_LEAVES - 1, rest))
    return found


def of_index(index: Any) -> tuple[int, int] | None:
    """(checksum in this order, sum of checksums modulo 2^16) of the indices of a batch; None without any."""
    if isinstance(index, int):
        index = [index]
    if not isinstance(index, Sequence) or not len(index) or index[0] is None:
        return None
    try:
        parts = [b"%d" % int(i) for i in index]
    except (TypeError, ValueError, RuntimeError):  # keys, tuples: told apart by how they are written
        parts = [repr(i).encode("utf-8", "backslashreplace") for i in index]
    # Of mixed values: sums of the numbers themselves are alike for many sets of samples.
    return crc32(b",".join(parts)), sum(map(crc32, parts)) & 0xFFFF
