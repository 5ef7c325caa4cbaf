"""What a batch holds: its tensors and arrays by path, their bytes, the samples. Reads sizes, never data."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

from hotloop.state.stored import attribute, children, is_tensor

#: A batch with more leaves than this is counted as far as the limit.
MAX_LEAVES: Final = 1000
MAX_DEPTH: Final = 8


def leaves(batch: Any, limit: int = MAX_LEAVES) -> Iterator[tuple[str, Any]]:
    """(path, value) of everything in nested mappings, sequences and dataclasses that is none of these.

    What may compute its entries on access is one leaf: asking could draw the script's random numbers.
    """
    stack: list[tuple[str, Any, int]] = [("", batch, 0)]
    budget = limit
    while stack and budget > 0:
        path, node, depth = stack.pop()
        inner = None if depth >= MAX_DEPTH else children(node)
        if inner is None:
            budget -= 1
            yield path, node
        else:
            start = f"{path}." if path else ""
            below = [(f"{start}{name}", value, depth + 1) for name, value in inner[:limit]]
            stack.extend(reversed(below))


def num_bytes(batch: Any) -> int:
    """Bytes of the tensors, arrays and byte strings in a batch."""
    return sum(_bytes(value) for _, value in leaves(batch))


def shape(value: Any) -> tuple[int, ...] | None:
    """The shape of a tensor or array, None of anything else."""
    found = attribute(value, "shape")
    return tuple(int(size) for size in found) if isinstance(found, tuple) else None


def fields(batch: Any) -> list[dict[str, Any]]:
    """One entry per tensor or array: path, dtype, shape, bytes, device, pinned."""
    found = []
    for path, value in leaves(batch):
        sizes = shape(value)
        if sizes is None:
            continue
        found.append(
            {
                "path": path,
                "dtype": str(attribute(value, "dtype", "")).replace("torch.", ""),
                "shape": list(sizes),
                "bytes": _bytes(value),
                "device": str(attribute(value, "device", "cpu")),
                "pinned": _pinned(value),
            }
        )
    return found


def _bytes(value: Any) -> int:
    kind = next((kind for kind in (bytes, bytearray, str) if kind in type(value).__mro__), None)
    if kind is not None:
        return kind.__len__(value)
    size = attribute(value, "nbytes", 0)
    return size if isinstance(size, int) else 0


def _pinned(value: Any) -> bool:
    """Whether a host tensor is page-locked. Asked only with CUDA in use: asking makes a context."""
    torch = sys.modules["torch"]
    if not is_tensor(value) or attribute(value, "is_cuda", True) or not torch.cuda.is_initialized():
        return False
    with torch._C.DisableTorchFunction():
        return bool(value.is_pinned())
