"""What a batch holds: its tensors and arrays by path, their bytes, the samples. Reads sizes, never data."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Final

#: A batch with more leaves than this is counted as far as the limit.
MAX_LEAVES: Final = 1000
MAX_DEPTH: Final = 8


def leaves(batch: Any, limit: int = MAX_LEAVES) -> Iterator[tuple[str, Any]]:
    """(path, value) of everything in nested mappings, sequences and dataclasses that is none of these."""
    stack: list[tuple[str, Any, int]] = [("", batch, 0)]
    budget = limit
    while stack and budget > 0:
        path, node, depth = stack.pop()
        inner = None if depth >= MAX_DEPTH else _children(node)
        if inner is None:
            budget -= 1
            yield path, node
        else:
            children = [(f"{path}.{name}" if path else str(name), value, depth + 1) for name, value in inner]
            stack.extend(reversed(children[:limit]))


def num_bytes(batch: Any) -> int:
    """Bytes of the tensors, arrays and byte strings in a batch."""
    return sum(_bytes(value) for _, value in leaves(batch))


def num_samples(batch: Any) -> int:
    """The length of the first tensor or array with a first dimension; 0 where there is none."""
    for _, value in leaves(batch):
        shape = getattr(value, "shape", None)
        if isinstance(shape, tuple) and shape:
            return int(shape[0])
    return 0


def fields(batch: Any) -> list[dict[str, Any]]:
    """One entry per tensor or array: path, dtype, shape, bytes, device, pinned."""
    found = []
    for path, value in leaves(batch):
        shape = getattr(value, "shape", None)
        if not isinstance(shape, tuple):
            continue
        found.append(
            {
                "path": path,
                "dtype": str(getattr(value, "dtype", "")).replace("torch.", ""),
                "shape": [int(size) for size in shape],
                "bytes": _bytes(value),
                "device": str(getattr(value, "device", "cpu")),
                "pinned": _pinned(value),
            }
        )
    return found


def _children(node: Any) -> list[tuple[Any, Any]] | None:
    if isinstance(node, Mapping):
        return list(node.items())
    if isinstance(node, (list, tuple)):
        names = getattr(node, "_fields", None)
        return list(zip(names, node, strict=False)) if names else list(enumerate(node))
    if dataclasses.is_dataclass(node) and not isinstance(node, type) and not hasattr(node, "shape"):
        return [(field.name, getattr(node, field.name, None)) for field in dataclasses.fields(node)]
    return None


def _bytes(value: Any) -> int:
    if isinstance(value, (bytes, bytearray, memoryview, str)):
        return len(value)
    size = getattr(value, "nbytes", 0)
    return size if isinstance(size, int) else 0


def _pinned(value: Any) -> bool:
    """Whether a host tensor is page-locked. Asked only with CUDA in use: asking makes a context."""
    if getattr(value, "is_cuda", True) or not hasattr(value, "is_pinned"):
        return False
    import sys

    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return False
    return bool(value.is_pinned())
